"""Sound in and out: decode uploads, shape speech, encode responses. numpy and FFmpeg (PyAV) only, no torch."""
