// One record whole: JSON in lines, bytes that are no text as a hex dump.
import { html } from "/console/vendor/htm-preact.js";
import { Facts } from "/console/parts.js";
import { bytes, count, moment } from "/console/units.js";

const DUMPED_BYTES_MAX = 4096;

export function RecordDetail({ record }) {
  return html`<${Facts} facts=${[
      ["partition, offset", `${record.partition}, ${count(record.offset)}`],
      ["time", `${moment(record.timestamp)} (${record.timestamp} ms)`],
    ]} />
    <${Decoded} title="key" decoded=${record.decoded?.key} /><${Whole} title="key" content=${record.key} />
    <${Decoded} title="value" decoded=${record.decoded?.value} /><${Whole} title="value" content=${record.value} />
    ${record.headers.map((header) => html`<${Whole} title=${`header ${header.key}`} content=${header.value} />`)}`;
}

/** What the schema of a registry makes of a key or a value, or why it stays raw. */
function Decoded({ title, decoded }) {
  if (!decoded) return null;
  if (decoded.code) return html`<h4>${title}, not decoded</h4><p>${decoded.reason} (${decoded.code})</p>`;
  return html`<h4>${title} by schema ${decoded.schema}, ${decoded.type}</h4><pre>${JSON.stringify(decoded.content, null, 2)}</pre>`;
}

/** A key or a value as the list of records shows it: decoded, where that worked. */
export function shownContent(record, part) {
  const decoded = record.decoded?.[part];
  return decoded && !decoded.code ? { json: decoded.content } : record[part];
}

function Whole({ title, content }) {
  if (content === null) return html`<h4>${title}</h4><span class="dim">null</span>`;
  if (typeof content === "object" && "base64" in content) {
    const raw = Uint8Array.from(atob(content.base64), (letter) => letter.charCodeAt(0));
    return html`<h4>${title}, ${bytes(raw.length)}</h4><pre>${dump(raw)}</pre>`;
  }
  const text = typeof content === "string" ? content : JSON.stringify(content.json ?? content);
  return html`<h4>${title}, ${bytes(new TextEncoder().encode(text).length)}</h4><pre>${inLines(text)}</pre>`;
}

/** JSON in lines; any other text as it is, and JSON too whose numbers would not come through whole. */
function inLines(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && !/\d{16}/.test(text) ? JSON.stringify(value, null, 2) : text;
  } catch {
    return text;
  }
}

/** Sixteen bytes a line: where, in hexadecimal, and what is a letter. */
function dump(raw) {
  const lines = [];
  for (let at = 0; at < Math.min(raw.length, DUMPED_BYTES_MAX); at += 16) {
    const line = [...raw.subarray(at, at + 16)];
    const hex = line.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const letters = line.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex}  ${letters}`);
  }
  if (raw.length > DUMPED_BYTES_MAX) lines.push(`… ${bytes(raw.length - DUMPED_BYTES_MAX)} more`);
  return lines.join("\n");
}
