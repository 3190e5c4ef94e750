// Consumer groups: who reads what, how far behind, and a reset with a preview.
import { html, useEffect, useState } from "/console/vendor/htm-preact.js";
import { ask, name, useDoor, useWrites } from "/console/doors.js";
import { Change, Chart, Empty, Facts, Pager, Table, Trouble } from "/console/parts.js";
import { count, moment } from "/console/units.js";

const POINTS_MAX = 450;
const GROUPS_MAX = 20;

export function Groups() {
  const [trail, setTrail] = useState([]);
  const after = trail[trail.length - 1];
  const { data, problem } = useDoor(`/v1/groups?limit=100${after ? `&after=${name(after)}` : ""}`, 3);
  return html`<h2>Groups</h2><${Trouble} problem=${problem} />
    ${data && html`<${Table} keyOf=${(group) => group.name} rows=${data.groups} empty=${html`No consumer group yet. Read as one: <code>pqbroker consume TOPIC --group NAME</code>`} columns=${[
      ["group", (group) => html`<a href=${`#/groups/${name(group.name)}`}>${group.name}</a>`, "text"],
      ["state", (group) => group.state], ["protocol", (group) => group.type],
      ["members", (group) => count(group.member_count), "number"],
      ["behind", (group) => count(group.lag), "number"],
      ["topics", (group) => group.topics.map((topic) => html`<a href=${`#/topics/${name(topic)}`}>${topic}</a> `), "text"],
    ]} /><${Pager} trail=${trail} next=${data.next} go=${setTrail} />`}`;
}

export function Group({ group }) {
  const { data, problem, reload } = useDoor(`/v1/groups/${name(group)}`, 2);
  const writes = useWrites();
  const lag = useLag(data);
  return html`<div class="crumbs"><a href="#/groups">Groups</a></div><h2>${group}</h2><${Trouble} problem=${problem} />
    ${data && html`<${Facts} facts=${[
      ["state", data.state], ["protocol", data.type], [data.type === "consumer" ? "assignor" : "assigned by", data.protocol ?? "–"],
      ...(data.type === "consumer" ? [["epoch", count(data.generation)], ["epoch of the targets", count(data.target_epoch)]] : [["generation", count(data.generation)]]),
      ["behind", count(data.lag)],
    ]} />
    <div class="charts"><${Chart} title="Records behind" now=${count(data.lag ?? 0)} times=${lag.times} values=${lag.values} show=${count} /></div>
    <h3>Members</h3>
    <${Table} keyOf=${(member) => member.id} rows=${data.members} empty="No member at the moment." columns=${[
      ["member", (member) => html`<code>${member.instance_id ?? member.id}</code>`, "text"],
      ["client", (member) => member.client_id, "text"], ["host", (member) => member.host, "text"],
      ...(data.type === "consumer" ? [["state", (member) => member.reconciliation?.state, "text"], ["epoch", (member) => count(member.reconciliation?.epoch), "number"]] : []),
      ["partitions", (member) => partitions(member.assignment ?? []), "text"],
      ...(data.type === "consumer" ? [["lets go", (member) => partitions(member.reconciliation?.revoking ?? []), "text"], ["waits for", (member) => partitions(missing(member)), "text"]] : []),
    ]} />
    <h3>Offsets</h3>
    <${Table} keyOf=${(one) => `${one.topic}:${one.partition}`} rows=${data.partitions} empty="It has committed nothing yet." columns=${[
      ["topic", (one) => html`<a href=${`#/topics/${name(one.topic)}/partitions/${one.partition}`}>${one.topic}</a>`, "text", (one) => one.topic],
      ["partition", (one) => one.partition, "number", (one) => one.partition], ["offset", (one) => count(one.offset), "number", (one) => one.offset],
      ["end offset", (one) => count(one.end_offset), "number", (one) => one.end_offset], ["behind", (one) => count(one.lag), "number", (one) => one.lag],
      ["committed", (one) => moment(one.commit_timestamp), "time", (one) => one.commit_timestamp],
    ]} />${data.next !== null && html`<p class="dim">The first ${data.partitions.length} are shown.</p>`}
    <h3>Reset</h3>
    <${Reset} group=${data} writes=${writes} done=${reload} />`}`;
}

function partitions(topics) {
  return topics.map((one) => html`<div>${one.topic}: ${one.partitions.join(", ")}</div>`);
}

/** Partitions that a member of the consumer protocol is to have and does not have yet. */
function missing(member) {
  const had = new Map((member.assignment ?? []).map((one) => [one.topic, new Set(one.partitions)]));
  return (member.reconciliation?.target ?? [])
    .map((one) => ({ topic: one.topic, partitions: one.partitions.filter((index) => !had.get(one.topic)?.has(index)) }))
    .filter((one) => one.partitions.length);
}

const seen = new Map();

/** How far behind the group was while this tab showed it; leaving the page and coming back keeps it. */
function useLag(group) {
  const [points, setPoints] = useState({ times: [], values: [] });
  useEffect(() => {
    if (!group) return;
    const before = seen.get(group.name) ?? { times: [], values: [] };
    const after = { times: [...before.times, Date.now()].slice(-POINTS_MAX), values: [...before.values, group.lag ?? 0].slice(-POINTS_MAX) };
    seen.delete(group.name);
    seen.set(group.name, after);
    if (seen.size > GROUPS_MAX) seen.delete(seen.keys().next().value);
    setPoints(after);
  }, [group]);
  return points;
}

function Reset({ group, writes, done }) {
  const topics = [...new Set(group.partitions.map((one) => one.topic))];
  const [topic, setTopic] = useState(topics[0] ?? "");
  const [to, setTo] = useState("earliest");
  const [preview, setPreview] = useState(null);
  const [problem, setProblem] = useState(null);
  if (!topics.length) return html`<${Empty}>There is nothing to reset: it has committed no offsets.<//>`;
  const path = `/v1/groups/${name(group.name)}/reset`;
  const show = async () => {
    try {
      setPreview(await ask(path, "POST", { topic, to, dry_run: true }));
      setProblem(null);
    } catch (error) {
      setPreview(null);
      setProblem(error);
    }
  };
  return html`<div class="bar"><label>topic <select value=${topic} onChange=${(event) => { setTopic(event.target.value); setPreview(null); }}>${topics.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>
      <label>to <input value=${to} title="earliest, latest, an offset, a time (2026-01-31T12:00) or an age (2h)" onInput=${(event) => { setTo(event.target.value); setPreview(null); }} /></label>
      <button onClick=${show}>Preview</button></div><${Trouble} problem=${problem} />
    ${preview && html`<${Table} rows=${preview.offsets} empty="Nothing would change." columns=${[
      ["partition", (one) => one.partition, "number"], ["now", (one) => count(one.before), "number"], ["then", (one) => count(one.offset), "number"],
    ]} />${writes
      ? html`<${Change} label="Reset" method="POST" path=${path} body=${{ topic, to }} danger confirm=${group.name} done=${() => { setPreview(null); done(); }} />`
      : html`<p class="dim">This page only reads. Do it with <code>pqbroker group reset ${group.name} ${topic} --to ${to}</code>, or set pqbroker.console.writes.</p>`}`}`;
}
