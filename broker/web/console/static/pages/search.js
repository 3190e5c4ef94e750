// A search in all partitions of a topic: what matches as it comes, how far it is, and a button to stop.
import { html, useEffect, useRef, useState } from "/console/vendor/htm-preact.js";
import { followLines, name, Problem } from "/console/doors.js";
import { bytes, count } from "/console/units.js";

const MATCHES_MAX = 500;
const NOTHING = { records: [], counts: null, end: null, unread: [], problem: null, isBusy: false };

/** {records, counts, end, unread, problem, isBusy, ask, stop, close}; `ask(body)` begins another search. */
export function useSearch(topic) {
  const [state, setState] = useState(null);
  const busy = useRef(null);
  const stop = () => busy.current?.abort();
  useEffect(() => stop, [topic]);
  const ask = async (body) => {
    stop();
    const stopper = new AbortController();
    busy.current = stopper;
    const isCurrent = () => busy.current === stopper;
    const change = (made) => isCurrent() && setState((before) => ({ ...before, ...made(before) }));
    setState({ ...NOTHING, isBusy: true });
    try {
      await followLines(`/v1/topics/${name(topic)}/search`, { ...body, limit: MATCHES_MAX }, stopper.signal, (lines) => change((before) => taken(before, lines)));
      change((before) => (before.end ? { isBusy: false } : { isBusy: false, problem: before.problem ?? BROKEN_OFF }));
    } catch (problem) {
      change(() => ({ isBusy: false, problem: stopper.signal.aborted ? null : problem, isStopped: stopper.signal.aborted }));
    }
  };
  const close = () => {
    stop();
    busy.current = null;
    setState(null);
  };
  return { ...(state ?? NOTHING), isOpen: state !== null, ask, stop, close };
}

const BROKEN_OFF = new Problem(0, { code: "BROKEN_OFF", message: "the search broke off", cure: "The log of the broker may say why." });

function taken(before, lines) {
  const after = { records: [...before.records], unread: [...before.unread] };
  for (const line of lines) {
    if (line.match) after.records.push(line.match);
    if (line.progress) after.counts = line.progress;
    if (line.unread) after.unread.push(line.unread);
    if (line.end) after.counts = after.end = line.end;
    if (line.error) after.problem = new Problem(0, line.error);
  }
  return after;
}

const REASONS = {
  end: "All records were looked at.", matches: `The first ${MATCHES_MAX} matches are shown.`, time: "Its time was over.", bytes: "Its limit of bytes was reached.",
  decompressed_bytes: "Its limit of decompressed bytes was reached.", answer_bytes: "Its limit of bytes of matches was reached.",
};

/** How far a search is, or why it ended. */
export function SearchState({ search }) {
  const { counts, end, isBusy, isStopped, unread } = search;
  const isOver = !isBusy;
  return html`<div class="bar" role="status">
      ${isBusy && html`<button class="danger" onClick=${search.stop}>Stop the search</button>
        <progress max=${counts?.offsets_total || 1} value=${counts?.offsets ?? 0}></progress>`}
      <span>${counts ? `${count(counts.matches)} found in ${count(counts.records)} records, ${bytes(counts.bytes)} of about ${bytes(counts.bytes_total)}.` : "Waiting for the broker …"}
        ${isOver && ` ${end ? REASONS[end.reason] ?? end.reason : isStopped ? "Stopped." : ""}`}</span>
      ${isOver && html`<button onClick=${search.close}>Back to all records</button>`}</div>
    ${end?.undecoded && html`<p class="dim">Records that were searched as they are, not decoded: ${count(end.undecoded.records)}; the first, at offset ${count(end.undecoded.offset)} of partition ${end.undecoded.partition}: ${end.undecoded.reason}</p>`}
    ${unread.map((one) => html`<p class="dim">Partition ${one.partition}, offsets ${count(one.offset)} to ${count(one.end_offset - 1)} cannot be read: ${one.reason}</p>`)}`;
}
