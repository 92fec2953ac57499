// Samples as files: 16 bit mono.

/** `samples` (Float32Array, full scale 1) as 16 bit little-endian integers, saturated. */
export function pcm(samples) {
  const view = new DataView(new ArrayBuffer(2 * samples.length));
  samples.forEach((sample, index) => {
    view.setInt16(2 * index, Math.max(-32768, Math.min(32767, Math.round(sample * 32768))), true);
  });
  return view.buffer;
}

/** A RIFF file of `samples`. */
export function wav(samples, rate) {
  const data = pcm(samples);
  const view = new DataView(new ArrayBuffer(44));
  const name = (offset, text) => [...text].forEach((letter, i) => view.setUint8(offset + i, letter.charCodeAt(0)));
  name(0, "RIFF");
  view.setUint32(4, 36 + data.byteLength, true);
  name(8, "WAVEfmt ");
  view.setUint32(16, 16, true); // bytes of the format that follow
  view.setUint16(20, 1, true); // integers
  view.setUint16(22, 1, true); // one channel
  view.setUint32(24, rate, true);
  view.setUint32(28, 2 * rate, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  name(36, "data");
  view.setUint32(40, data.byteLength, true);
  return new Blob([view, data], { type: "audio/wav" });
}
