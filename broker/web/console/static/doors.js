// The doors under /v1, and the one stream of events of this tab.
import { tokenFor } from "/console/logins.js";
import { useCallback, useEffect, useRef, useState } from "/console/vendor/htm-preact.js";

/** What the broker refused: cause and cure. */
export class Problem extends Error {
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.code = error.code;
    this.cure = error.cure;
  }
}

/** The document of a door. Throws Problem. */
export async function ask(path, method = "GET", body = undefined, signal = undefined, reviver = undefined) {
  const response = await reach(path, method, body, signal);
  const text = await response.text();
  return text ? JSON.parse(text, reviver) : null;
}

/** {rows, isCut} of a door that answers JSON lines: at most `most`, then the broker may stop. Throws Problem. */
export async function askLines(path, body, most, signal) {
  const response = await reach(path, "POST", body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const rows = [];
  let rest = "";
  try {
    while (rows.length <= most) {
      const { value, done } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) rows.push(JSON.parse(line, exact));
    }
  } catch (error) {
    throw cut(signal);
  }
  reader.cancel().catch(() => null);
  const last = rows[rows.length - 1]?.error;
  if (rows.length <= most && last?.code && last.cure) throw new Problem(response.status, last);
  return { rows: rows.slice(0, most), isCut: rows.length > most };
}

/** Read an answer of JSON lines while it comes: `take` gets the lines of each piece. Throws Problem. */
export async function followLines(path, body, signal, take) {
  const response = await reach(path, "POST", body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      take(lines.map((line) => JSON.parse(line)));
    }
  } catch (error) {
    throw cut(signal);
  }
}

/** For JSON.parse: integers beyond 2^53 come through whole, where the browser shows their text. */
export function exact(_, value, context) {
  return typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "") ? BigInt(context.source) : value;
}

async function reach(path, method, body, signal) {
  const options = { method, headers: tokenFor(method), signal };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    throw cut(signal);
  }
  if (response.status === 401) dispatchEvent(new Event("login"));
  if (!response.ok) throw new Problem(response.status, (await response.json()).error);
  return response;
}

function cut(signal) {
  if (signal?.aborted) return new Problem(0, { code: "STOPPED", message: "stopped", cure: "" });
  return new Problem(0, { code: "NO_ANSWER", message: "the broker does not answer", cure: "It may be starting again: this page asks again by itself." });
}

export const name = encodeURIComponent;

// One stream for all pages of the tab: each listener hears every figures event, null when the stream is cut.
const listeners = new Set();
let source = null;
let isListening = false;
let last = null;

async function listen() {
  isListening = true;
  if (!(await seesNode())) return void setInterval(() => tell({}), 1000);
  source = new EventSource("/v1/events");
  source.addEventListener("figures", (event) => {
    const { time, status, conditions, figures } = JSON.parse(event.data);
    tell({ time, status, conditions, ...figures });
  });
  source.onerror = () => {
    tell(null);
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
  };
}

/** Whether the caller may follow the node; without that right pages are filled again by the clock. */
async function seesNode() {
  try {
    return (await ask("/v1/rights")).cluster.includes("describe");
  } catch {
    return true; // the broker is away: the stream says so, and is tried again
  }
}

function tell(figures) {
  last = figures;
  for (const listener of [...listeners]) listener(figures);
}

/** Call `listener` with each figures event; returns what ends that. */
export function onFigures(listener) {
  if (!isListening) listen();
  listeners.add(listener);
  if (last !== null) listener(last);
  return () => listeners.delete(listener);
}

const SLOW_MS = 2000;
const SLOW = {
  code: "WAITING", message: "the broker has not answered for two seconds", cure: "It may be busy, or its disk slow: the page is filled when the answer comes.",
};

/** A door's document, asked again every `seconds` while the page is seen. */
export function useDoor(path, seconds = 3, reviver = undefined) {
  const [state, setState] = useState({ path, data: null, problem: null });
  const busy = useRef(false);
  const wanted = useRef(path);
  wanted.current = path;
  const load = useCallback(async () => {
    if (busy.current || !path) return;
    busy.current = true;
    let found;
    try {
      found = { path, data: await ask(path, "GET", undefined, undefined, reviver), problem: null };
    } catch (problem) {
      found = { path, data: null, problem };
    }
    busy.current = false;
    // What a slow answer says of an earlier page is not shown on this one; a cut keeps what was seen last.
    if (wanted.current !== path) return;
    setState((before) => (found.problem?.status === 0 && before.path === path ? { ...before, problem: found.problem } : found));
  }, [path]);
  useEffect(() => {
    let ticks = 0;
    load();
    return onFigures((figures) => {
      ticks += 1;
      if (figures !== null && ticks % seconds === 0 && !document.hidden) load();
    });
  }, [path, load, seconds]);
  const [slow, setSlow] = useState(null);
  useEffect(() => {
    const timer = setTimeout(() => setSlow(path), SLOW_MS);
    return () => clearTimeout(timer);
  }, [path]);
  const isAnswered = state.path === path && (state.data !== null || state.problem !== null);
  const current = isAnswered ? state : { data: null, problem: slow === path && path ? SLOW : null };
  return { ...current, reload: load };
}

/** A list's document, or the one before while the next answer is on its way: rows do not go and come as one types. */
export function useKept(data, problem) {
  const last = useRef(null);
  if (data !== null || problem !== null) last.current = data;
  return last.current;
}

/**
 * What the caller may do here: `writes`, whether the pages offer changes at all (pqbroker.console.writes; the API is not
 * concerned), and `may(kind, right)`, which is false for changes that the broker would refuse this caller.
 * `of`: the {topic} or {group} that is meant.
 */
export function useRights(of = {}) {
  const query = new URLSearchParams(of).toString();
  const data = useDoor(`/v1/rights${query ? `?${query}` : ""}`, 30).data;
  const writes = data?.console_writes ?? false;
  const has = (kind, right) => data?.[kind]?.includes(right) ?? false;
  return {
    isKnown: data !== null, user: data?.user ?? null, writes, has, may: (kind, right) => writes && has(kind, right),
    makesTopics: writes && (data?.creates_topics ?? false),
  };
}
