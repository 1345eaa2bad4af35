// Numbers in words. Everything here is pure.

/** A number with at most three digits that matter: 7.25, 72.5, 725, 7,250. */
export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  const digits = size === 0 || size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return trim(value.toLocaleString("en-GB", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
}

/** Requests per second. */
export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value > 0 && value < 0.05) return "<0.1/s";
  const digits = value === 0 || value >= 10 ? 0 : 1;
  return `${value.toLocaleString("en-GB", { minimumFractionDigits: digits, maximumFractionDigits: digits })}/s`;
}

/** A whole count. */
export function count(value) {
  return Math.round(value).toLocaleString("en-GB");
}

/** Seconds, in the unit that fits. */
export function time(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds >= 120) return `${number(seconds / 60)} min`;
  if (seconds >= 1) return `${trim(seconds.toFixed(2))} s`;
  if (seconds >= 0.01 || seconds === 0) return `${Math.round(seconds * 1000)} ms`;
  return `${number(seconds * 1000)} ms`;
}

/** A share from 0 to 1. Only nothing is 0 % and only all is 100 %. */
export function percent(share) {
  if (!Number.isFinite(share)) return "–";
  if (share > 0 && share < 0.005) return "<1 %";
  if (share < 1 && share > 0.995) return ">99 %";
  return `${Math.round(share * 100)} %`;
}

/** The time of day, from seconds since 1970. */
export function clock(epoch) {
  return new Date(epoch * 1000).toLocaleTimeString("en-GB");
}

/** How long something has been going on, in one or two units. */
export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const [d, h, m, s] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60, whole % 60];
  if (d) return `${d} d ${h} h`;
  if (h) return `${h} h ${m} min`;
  return m ? `${m} min ${s} s` : `${s} s`;
}

function trim(text) {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}
