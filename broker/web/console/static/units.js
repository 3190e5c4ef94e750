// Numbers, sizes and times as people read them.

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB"];

/** A size in bytes: 1.5 MiB. */
export function bytes(size) {
  if (size === null || size === undefined) return "–";
  let step = 0;
  let value = size;
  while (Math.abs(value) >= 1024 && step < SIZES.length - 1) {
    value /= 1024;
    step += 1;
  }
  return `${step === 0 ? Math.round(value) : value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ${SIZES[step]}`;
}

/** A count, its thousands apart: 12 345. */
export function count(number) {
  if (number === null || number === undefined) return "–";
  const text = Number.isInteger(number) ? String(number) : number.toFixed(number < 10 ? 2 : 1);
  const [whole, part] = text.split(".");
  return whole.replace(/\B(?=(\d{3})+$)/g, " ") + (part ? `.${part}` : "");
}

/** A span of milliseconds: 3 d 4 h, 12 s. */
export function span(ms) {
  if (ms === null || ms === undefined) return "–";
  const seconds = Math.max(0, Math.round(ms / 1000));
  const steps = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = steps.findIndex(([, size]) => seconds >= size);
  if (first < 0) return "0 s";
  const [name, size] = steps[first];
  const rest = steps[first + 1];
  const more = rest ? Math.floor((seconds % size) / rest[1]) : 0;
  return `${Math.floor(seconds / size)} ${name}` + (more ? ` ${more} ${rest[0]}` : "");
}

/** A moment in ms since 1970, in the reader's own time. */
export function moment(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const time = new Date(ms);
  const two = (number) => String(number).padStart(2, "0");
  const day = `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  return `${day} ${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}

/** For JSON.stringify: an integer that JavaScript has no number for leaves as text. */
export function inJson(_, value) {
  return typeof value === "bigint" ? String(value) : value;
}
