// The microphone: up to 30 seconds, as a wav file.

import { wav } from "./wav.js";

export const LONGEST = 30; // seconds, as for every reference
const RATE = 24000; // what a prompt is made from

/** Browsers open the microphone for pages that came by https or from this machine only. */
export const canRecord = () => Boolean(navigator.mediaDevices?.getUserMedia && window.MediaRecorder);

/** Record until `stop` fires or the limit is reached. Calls `progress(seconds, level)`; resolves to a wav Blob. */
export async function record(stop, progress) {
  const stream = await navigator.mediaDevices.getUserMedia({
    audio: { channelCount: 1, echoCancellation: false, autoGainControl: false },
  });
  try {
    return await toWav(await recorded(stream, stop, progress));
  } finally {
    for (const track of stream.getTracks()) track.stop();
  }
}

async function recorded(stream, stop, progress) {
  const recorder = new MediaRecorder(stream);
  const parts = [];
  recorder.ondataavailable = ({ data }) => parts.push(data);
  const stopped = new Promise((resolve) => (recorder.onstop = resolve));
  const end = () => recorder.state === "recording" && recorder.stop();
  const meter = levels(stream);
  recorder.start();
  const began = performance.now();
  const timer = setInterval(() => {
    const seconds = (performance.now() - began) / 1000;
    progress(seconds, meter.level());
    if (seconds >= LONGEST - 0.2) end(); // what is encoded may be a little longer than the clock says
  }, 50);
  stop.addEventListener("abort", end);
  if (stop.aborted) end();
  await stopped;
  clearInterval(timer);
  meter.close();
  return new Blob(parts, { type: recorder.mimeType });
}

function levels(stream) {
  const context = new AudioContext();
  const analyser = context.createAnalyser();
  context.createMediaStreamSource(stream).connect(analyser);
  const block = new Float32Array(analyser.fftSize);
  return {
    level() {
      analyser.getFloatTimeDomainData(block);
      return Math.sqrt(block.reduce((sum, sample) => sum + sample * sample, 0) / block.length);
    },
    close: () => context.close(),
  };
}

/** Any browser's own container as wav: the server need not know it, and the page can tell its length. */
async function toWav(blob) {
  const sound = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(await blob.arrayBuffer());
  return wav(sound.getChannelData(0), RATE);
}
