// What the node does now, and did in the last fifteen minutes.
import { html, useEffect, useState } from "/console/vendor/htm-preact.js";
import { onFigures, useDoor } from "/console/doors.js";
import { Passes } from "/console/pages/cleaning.js";
import { Chart, Table, Tile, Trouble } from "/console/parts.js";
import { bytes, count, moment, span } from "/console/units.js";

const CHARTS = [
  ["bytes_in", "Received a second", bytes], ["bytes_out", "Sent a second", bytes],
  ["requests", "Requests a second", count], ["cpu_seconds", "Processor, of one core", (share) => `${Math.round(100 * share)} %`],
];
const POINTS_MAX = 400;

/** Points of the series door, then of the events: {times, figures: {name: [value]}}. */
function usePoints() {
  const series = useDoor("/v1/series", 60).data;
  const [live, setLive] = useState([]);
  useEffect(() => onFigures((figures) => figures && setLive((before) => [...before, figures].slice(-POINTS_MAX))), []);
  if (!series) return [];
  const old = series.times.map((time, at) => Object.fromEntries([["time", time], ...series.series.map((one) => [one.name, one.values[at]])]));
  const after = old.length ? old[old.length - 1].time : 0;
  return [...old, ...live.filter((point) => point.time > after)];
}

/** What a counter rose by a second between points; null where the node started again. */
function rates(points, name) {
  return points.map((point, at) => {
    if (at === 0) return null;
    const rise = point[name] - points[at - 1][name];
    const seconds = (point.time - points[at - 1].time) / 1000;
    return rise < 0 || seconds <= 0 ? null : rise / seconds;
  });
}

export function Overview() {
  const { data: node, problem } = useDoor("/v1/node", 3);
  const log = useDoor("/v1/log?limit=8&level=info", 5).data;
  const points = usePoints();
  const times = points.map((point) => point.time);
  const last = points[points.length - 1];
  return html`<h2>Overview</h2><${Trouble} problem=${problem} />
    ${node?.topics === 0 && html`<p class="welcome">This broker is empty. <a href="#/tour">Take the tour</a>: create a topic, write to it, see the record, query it.</p>`}
    ${node && html`<div class="tiles">
      <${Tile} value=${node.status} kind=${node.status === "ok" ? "good" : "bad"} name="state of the node" />
      <${Tile} value=${count(node.topics)} name="topics" />
      <${Tile} value=${count(node.tablets)} name="tablets" />
      <${Tile} value=${count(last?.connections ?? node.connections)} name="connections" />
      <${Tile} value=${bytes(last?.resident_bytes)} name="memory" />
      <${Tile} value=${bytes(last?.free_bytes)} name="free on disk" />
      <${Tile} value=${span(node.uptime_ms)} name="since the start" />
      <${Tile} value=${node.durability} name="durability" kind=${node.durability === "fsync" ? "" : "warn"} />
    </div>`}
    <div class="charts">${CHARTS.map(([name, title, show]) => {
      const values = rates(points, name);
      return html`<${Chart} key=${name} title=${title} now=${show(values[values.length - 1] ?? 0)} times=${times} values=${values} show=${show} />`;
    })}</div>
    ${node && html`<h3>Addresses</h3><p>${node.listeners.map((one) => html`<code>${one.address}</code> <span class="dim">${one.name}</span> `)}
      <span class="dim">advertised to clients as</span> <code>${node.advertised}</code></p>`}
    <${Passes} />
    <h3>Log</h3>
    <${Table} keyOf=${(line) => line.number} rows=${[...(log?.lines ?? [])].reverse()} empty="Nothing yet." columns=${[
      ["time", (line) => moment(line.time), "time"],
      ["level", (line) => html`<span class=${{ warning: "warn", error: "bad", critical: "bad" }[line.level] ?? "dim"}>${line.level}</span>`],
      ["message", (line) => line.message, "text"],
    ]} />`;
}
