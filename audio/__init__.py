"""Sound in and out: decode uploads, resample, encode responses. numpy and libsndfile only, no torch."""
