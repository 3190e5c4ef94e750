// Inside a partition: one axis of offsets with bodies, head levels, group cursors and epochs; why the oldest data is there.
import { html, useState } from "/console/vendor/htm-preact.js";
import { name, useDoor, useRights } from "/console/doors.js";
import { Cleaning } from "/console/pages/cleaning.js";
import { Facts, Table, Trouble } from "/console/parts.js";
import { bytes, count, moment, span } from "/console/units.js";

const WIDTH = 1000;
const LETTER = 6.5;
const LABEL_ROWS_MAX = 6;
const LISTED_MAX = 500;
const CURSORS_FEW = 8;
const BUNDLE_WIDTH = 56;
const BUNDLE_LEAST = 4;
const BUNDLE_MOST = 22;
const NAMES_MAX = 20;
const GROUPS_SHOWN = 20;

/** Cursors that are too near to each other to be told apart, together; each alone where they are few. */
function gathered(consumers, at) {
  const bundles = [];
  for (const one of [...consumers].sort((one, other) => one.offset - other.offset)) {
    const last = bundles[bundles.length - 1];
    const x = at(one.offset);
    if (consumers.length > CURSORS_FEW && last && x - last.from < BUNDLE_WIDTH) {
      last.groups.push(one);
      last.to = x;
    } else {
      bundles.push({ groups: [one], from: x, to: x });
    }
  }
  return bundles;
}

const label = ({ groups }) => (groups.length === 1 ? groups[0].group : `${count(groups.length)} groups`);

/** Where each label stands: in the first row where it covers no other; the last row takes what is left. */
function labelled(bundles) {
  const ends = [];
  return bundles.map((one) => {
    const x = (one.from + one.to) / 2;
    const width = label(one).length * LETTER;
    const isEnd = x + width > WIDTH;
    const left = one.groups.length > 1 ? x - width / 2 : isEnd ? x - width : x;
    let row = ends.findIndex((end) => end < left);
    if (row < 0) row = Math.min(ends.length, LABEL_ROWS_MAX - 1);
    ends[row] = left + width + LETTER;
    return { one, x, row, anchor: isEnd ? "end" : "start" };
  });
}

export function Partition({ topic, partition }) {
  const { data, problem, reload } = useDoor(`/v1/topics/${name(topic)}/partitions/${partition}?limit=${LISTED_MAX}`, 2);
  const writes = useRights({ topic }).may("topic", "alter");
  return html`<div class="crumbs"><a href="#/topics">Topics</a> / <a href=${`#/topics/${name(topic)}`}>${topic}</a></div>
    <h2>Partition ${partition}</h2><${Trouble} problem=${problem} />${data && html`<${Inside} data=${data} writes=${writes} reload=${reload} />`}`;
}

function Inside({ data, writes: mayChange, reload }) {
  const { oldest_data: oldest, kafka_transactions: transactions, writes, written, read } = data;
  const blobs = data.head.levels.flatMap((level, at) => level.blobs.map((blob) => ({ ...blob, level: at })));
  return html`<${Axis} data=${data} />
    <h3>Why the oldest data is still there</h3>
    <p>${oldest.reason}${oldest.until !== null && html`, until <b>${moment(oldest.until)}</b> <span class="dim">(${span(oldest.until - Date.now())} left)</span>`}
      ${oldest.groups.length > 0 && html` <span class="dim">groups: ${oldest.groups.join(", ")}</span>`}</p>
    <${Facts} facts=${[
      ["offsets", `${count(data.start_offset)} to ${count(data.end_offset)}`],
      ["size", bytes(data.size_bytes)],
      ["writes", writes.are_taken ? html`<span class="good">taken</span>` : html`<span class="bad">${writes.reason}</span>`],
      ...(transactions.oldest_open ? [["last stable offset", html`<span title="readers of committed records end here">${count(transactions.last_stable_offset)}: ${transactions.oldest_open}</span>`]] : []),
      ["leader epoch", count(data.leader_epoch)],
      ["tablet", html`<a href=${`#/tablets/${data.tablet}`}>${data.tablet}</a>`],
      ["written", `${count(written.records)} records in ${count(written.cycles)} cycles; ${count(written.amplification)} bytes stored for each byte`],
      ["read", `${bytes(read.bytes)} in ${count(read.reads)} reads, ${count(read.reads_from_store)} of them from the store`],
    ]} />
    <${Cleaning} topic=${data.topic} partition=${data.partition} cleaning=${data.cleaning} writes=${mayChange} reload=${reload} />
    <h3>Groups that read it</h3>
    <${Consumers} consumers=${data.consumers} />
    <h3>Head: ${bytes(data.head.size_bytes)}, ${bytes(data.head.in_memory_bytes)} in memory</h3>
    <${Table} rows=${blobs} empty="The head is empty." columns=${[
      ["level", (blob) => blob.level, "number"], ["from", (blob) => count(blob.offset), "number"], ["to", (blob) => count(blob.end_offset), "number"],
      ["size", (blob) => bytes(blob.size_bytes), "number"], ["pieces", (blob) => blob.pieces, "number"], ["key", (blob) => html`<code>${blob.key}</code>`, "text"],
    ]} />
    <h3>Body: ${bytes(data.body.size_bytes)} in ${count(data.body.count)} blobs</h3>
    <${Table} rows=${data.body.blobs} empty="No data has moved from the head to the body yet." columns=${[
      ["from", (blob) => count(blob.offset), "number"], ["to", (blob) => count(blob.end_offset), "number"],
      ["size", (blob) => bytes(blob.size_bytes), "number"], ["created", (blob) => moment(blob.created), "time"], ["key", (blob) => html`<code>${blob.key}</code>`, "text"],
    ]} />${data.body.count > data.body.blobs.length && html`<p class="dim">The oldest ${data.body.blobs.length} are shown, here and on the axis.</p>`}
    <h3>Leader epochs</h3>
    <${Table} rows=${data.leader_epochs} empty="None." columns=${[
      ["epoch", (one) => count(one.leader_epoch), "number"], ["from offset", (one) => count(one.start_offset), "number"], ["", () => ""],
    ]} />
    <h3>Producers remembered: ${count(data.producers.count)}</h3>
    <${Table} rows=${data.producers.producers} empty="None." columns=${[
      ["id", (one) => count(one.id), "number"], ["epoch", (one) => one.epoch, "number"], ["last sequence", (one) => (one.last_sequence === null ? "" : count(one.last_sequence)), "number"],
      ["last offset", (one) => count(one.last_offset), "number"], ["last written", (one) => moment(one.last_written), "time"],
    ]} />`;
}

/** Offsets of groups in words, for a bundle of them. */
function cursors(groups) {
  const named = groups.slice(0, NAMES_MAX).map((one) => `${one.group} at ${count(one.offset)}`);
  return named.join("\n") + (groups.length > NAMES_MAX ? `\nand ${count(groups.length - NAMES_MAX)} more` : "");
}

function Consumers({ consumers }) {
  const [part, setPart] = useState("");
  const [isAll, setAll] = useState(false);
  const found = consumers.consumers.filter((one) => one.group.toLowerCase().includes(part.trim().toLowerCase())).sort((one, other) => other.lag - one.lag);
  const shown = isAll ? found : found.slice(0, GROUPS_SHOWN);
  const isMany = consumers.consumers.length > GROUPS_SHOWN;
  return html`${isMany && html`<div class="bar"><input data-search placeholder="name contains …" aria-label="group contains" value=${part} onInput=${(event) => setPart(event.target.value)} />
      <span class="dim">${count(consumers.count)} groups, the largest lag first${consumers.count > consumers.consumers.length ? `; ${count(consumers.consumers.length)} of them are here and on the axis` : ""}</span></div>`}
    <${Table} keyOf=${(one) => one.group} rows=${shown} empty=${part ? "No group has a name that contains this text." : "No group has committed an offset here."} columns=${[
      ["group", (one) => html`<a href=${`#/groups/${name(one.group)}`}>${one.group}</a>`, "text"],
      ["offset", (one) => count(one.offset), "number"],
      ["lag", (one) => count(one.lag), "number"], ["committed", (one) => moment(one.committed), "time"],
      ["", (one) => (one.important ? html`<span class="tag" title="pq.important.groups: it keeps data it has not read">important</span>` : "")],
    ]} />
    ${found.length > shown.length && html`<button onClick=${() => setAll(true)}>Show all ${count(found.length)}</button>`}`;
}

/** Offsets from left to right. What is narrower than a pixel is drawn a pixel wide. */
function Axis({ data }) {
  const from = data.start_offset;
  const length = Math.max(1, data.end_offset - from);
  const at = (offset) => (Math.min(Math.max(offset, from), data.end_offset) - from) / length * WIDTH;
  const levels = data.head.levels.length;
  const bottom = 58 + 12 * levels;
  const labels = labelled(gathered(data.consumers.consumers, at));
  const most = Math.max(1, ...labels.map(({ one }) => one.groups.length));
  const floor = bottom + 18 + (most > 1 ? BUNDLE_MOST : 0);
  const height = floor + 16 + 13 * Math.max(0, ...labels.map(({ row }) => row));
  const box = (blob, y, kind) => html`<rect class=${kind} x=${at(blob.offset)} y=${y} height="10"
    width=${Math.max(1, at(blob.end_offset) - at(blob.offset) - 0.6)}><title>${blob.offset} to ${blob.end_offset}, ${bytes(blob.size_bytes)}</title></rect>`;
  return html`<div class="wide"><svg class="axis" viewBox=${`-4 0 ${WIDTH + 8} ${height}`} role="img" aria-label="the partition along its offsets">
    <text x="0" y="11">${data.body.blobs.length ? "body" : "body: empty, all data is in the head"}</text>
    ${data.body.blobs.map((blob) => box(blob, 16, "body"))}
    <text x="0" y="42">head, by level</text>
    ${data.head.levels.flatMap((level, number) => level.blobs.map((blob) => box(blob, 48 + 12 * number, "head")))}
    <line class="line" x1="0" x2=${WIDTH} y1=${bottom} y2=${bottom} />
    ${data.leader_epochs.filter((epoch) => epoch.start_offset > from && epoch.start_offset < data.end_offset).map((epoch) => html`<line class="epoch" x1=${at(epoch.start_offset)} x2=${at(epoch.start_offset)} y1="14" y2=${bottom}>
      <title>epoch ${epoch.leader_epoch} from ${epoch.start_offset}</title></line>`)}
    ${labels.map(({ one, x, row, anchor }) => {
      const high = one.groups.length > 1 ? BUNDLE_LEAST + (BUNDLE_MOST - BUNDLE_LEAST) * one.groups.length / most : 0;
      return html`<g class="bundle">${high > 0
        ? html`<rect class="cursors" x=${one.from} width=${Math.max(2, one.to - one.from)} y=${floor - high} height=${high} />`
        : html`<line class="cursor" x1=${x} x2=${x} y1="14" y2=${floor + 13 * row} />`}
      <text x=${x} y=${floor + 12 + 13 * row} text-anchor=${high > 0 ? "middle" : anchor}>${label(one)}</text><title>${cursors(one.groups)}</title></g>`;
    })}
    <text x="0" y=${bottom + 14}>${count(from)}</text>
    <text x=${WIDTH} y=${bottom + 14} text-anchor="end">${count(data.end_offset)}</text>
  </svg></div>`;
}
