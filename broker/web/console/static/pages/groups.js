// Consumer groups: found by a part of the name, sorted; who reads what, its lag over time, a reset with a preview, deleting.
import { html, useEffect, useState } from "/console/vendor/htm-preact.js";
import { ask, name, useDoor, useKept, useRights } from "/console/doors.js";
import { Change, Chart, Empty, Facts, Pager, Table, Trouble, useOrder } from "/console/parts.js";
import { count, moment } from "/console/units.js";

const LIMIT = 100;
const POINTS_MAX = 450;
const GROUPS_MAX = 200;
const TOPICS_SHOWN = 3;

export function Groups() {
  const [trail, setTrail] = useState([]);
  const [part, setPart] = useState("");
  const order = useOrder(() => setTrail([]));
  const after = trail[trail.length - 1];
  const query = new URLSearchParams({ limit: LIMIT, ...(after && { after }), ...(part.trim() && { contains: part.trim() }), ...order.query });
  const { data, problem } = useDoor(`/v1/groups?${query}`, 3);
  const shown = useKept(data, problem);
  useEffect(() => data?.groups.forEach(keep), [data]);
  return html`<h2>Groups</h2>
    <div class="bar"><input data-search placeholder="name contains …" aria-label="name contains" value=${part}
        onInput=${(event) => { setPart(event.target.value); setTrail([]); }} />
      ${shown && html`<span class="dim">${count(shown.total)} ${shown.total === 1 ? "group" : "groups"}</span>`}</div>
    <${Trouble} problem=${problem} />
    ${shown && html`<${Table} keyOf=${(group) => group.name} rows=${shown.groups} order=${order}
      empty=${part ? "No group has a name that contains this text." : html`No consumer group yet. Read as one: <code>pqbroker consume TOPIC --group NAME</code>`} columns=${[
      ["group", (group) => html`<a href=${`#/groups/${name(group.name)}`}>${group.name}</a>`, "name", null, "name"],
      ["state", (group) => group.state, "", null, "state"], ["protocol", (group) => group.type, "spare", null, "type"],
      ["members", (group) => count(group.member_count), "number", null, "members"],
      ["lag", (group) => count(group.lag), "number", null, "lag"],
      ["topics", (group) => html`${group.topics.slice(0, TOPICS_SHOWN).map((topic) => html`<a href=${`#/topics/${name(topic)}`}>${topic}</a> `)}${group.topics.length > TOPICS_SHOWN && `and ${count(group.topics.length - TOPICS_SHOWN)} more`}`, "text spare"],
    ]} /><${Pager} trail=${trail} next=${data?.next ?? null} go=${setTrail} />`}`;
}

export function Group({ group }) {
  const { data, problem, reload } = useDoor(`/v1/groups/${name(group)}`, 2);
  const rights = useRights({ group });
  const lag = useLag(data);
  return html`<div class="crumbs"><a href="#/groups">Groups</a></div><h2>${group}</h2><${Trouble} problem=${problem} />
    ${data && html`<${Facts} facts=${[
      ["state", data.state], ["protocol", data.type], [data.type === "consumer" ? "assignor" : "assigned by", data.protocol ?? "–"],
      ...(data.type === "consumer" ? [["epoch", count(data.generation)], ["epoch of the targets", count(data.target_epoch)]] : [["generation", count(data.generation)]]),
      ["lag", `${count(data.lag)} records`],
    ]} />
    <div class="charts"><${Chart} title="Lag, in records" now=${count(data.lag ?? 0)} times=${lag.times} values=${lag.values} show=${whole} /></div>
    <h3>Members</h3>
    <${Table} keyOf=${(member) => member.id} rows=${data.members} empty="No member at the moment." columns=${[
      ["member", (member) => html`<code>${member.instance_id ?? member.id}</code>`, "text"],
      ["client", (member) => member.client_id, "text"], ["host", (member) => member.host, "text"],
      ...(data.type === "consumer" ? [["state", (member) => member.reconciliation?.state, "text"], ["epoch", (member) => count(member.reconciliation?.epoch), "number"]] : []),
      ["partitions", (member) => partitions(member.assignment ?? []), "text"],
      ...(data.type === "consumer" ? [["gives up", (member) => partitions(member.reconciliation?.revoking ?? []), "text"], ["waits for", (member) => partitions(missing(member)), "text"]] : []),
    ]} />
    <h3>Offsets</h3>
    <${Table} keyOf=${(one) => `${one.topic}:${one.partition}`} rows=${data.partitions} empty="This group has committed no offset yet." columns=${[
      ["topic", (one) => html`<a href=${`#/topics/${name(one.topic)}/partitions/${one.partition}`}>${one.topic}</a>`, "text", (one) => one.topic],
      ["partition", (one) => one.partition, "number", (one) => one.partition], ["offset", (one) => count(one.offset), "number", (one) => one.offset],
      ["end offset", (one) => count(one.end_offset), "number", (one) => one.end_offset], ["lag", (one) => count(one.lag), "number", (one) => one.lag],
      ["committed", (one) => moment(one.commit_timestamp), "time", (one) => one.commit_timestamp],
    ]} />${data.next !== null && html`<p class="dim">The first ${data.partitions.length} are shown.</p>`}
    <h3>Reset offsets</h3><${Reset} group=${data} rights=${rights} done=${reload} />
    <${Delete} group=${data} rights=${rights} />`}`;
}

/** A group with members is neither reset nor deleted: they hold its partitions. */
function Delete({ group, rights }) {
  if (!rights.may("group", "delete")) return null;
  return html`<h3>Delete</h3>${group.member_count > 0
    ? html`<p class="dim">Stop its ${count(group.member_count)} ${group.member_count === 1 ? "member" : "members"} first: a group with members is not deleted.</p>`
    : html`<${Change} label="Delete this group" method="DELETE" danger confirm=${group.name} path=${`/v1/groups/${name(group.name)}`} done=${() => { location.hash = "#/groups"; }} />`}`;
}

/** A count for an axis, which has no label at half a record. */
const whole = (number) => (Number.isInteger(number) ? count(number) : "");

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

/** Keep a group's lag, as it is now, for its chart. */
function keep(group) {
  const before = seen.get(group.name) ?? { times: [], values: [] };
  const after = { times: [...before.times, Date.now()].slice(-POINTS_MAX), values: [...before.values, group.lag ?? 0].slice(-POINTS_MAX) };
  seen.delete(group.name);
  seen.set(group.name, after);
  if (seen.size > GROUPS_MAX) seen.delete(seen.keys().next().value);
  return after;
}

/** The group's lag while this tab showed it, alone or in the list; leaving the page and coming back keeps it. */
function useLag(group) {
  const [points, setPoints] = useState({ times: [], values: [] });
  useEffect(() => {
    if (group) setPoints(keep(group));
  }, [group]);
  return points;
}

function Reset({ group, rights, done }) {
  const topics = [...new Set(group.partitions.map((one) => one.topic))];
  const [chosen, setTopic] = useState(null);
  const topic = chosen ?? topics[0] ?? "";
  const [to, setTo] = useState("earliest");
  const [preview, setPreview] = useState(null);
  const [problem, setProblem] = useState(null);
  const topicRights = useRights(topic ? { topic } : {});
  if (!topics.length) return html`<${Empty}>There is nothing to reset: this group has committed no offsets.<//>`;
  const mayNot = !rights.has("group", "read") ? "the group" : !topicRights.has("topic", "read") ? `topic ${topic}` : null;
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
      ${mayNot === null && html`<label>to <input value=${to} list="reset-places" title="earliest, latest, an offset, a time (2026-01-31T12:00) or an age (2h)" onInput=${(event) => { setTo(event.target.value); setPreview(null); }} /></label>
      <datalist id="reset-places">${["earliest", "latest", "1h", "1d"].map((each) => html`<option value=${each} />`)}</datalist>
      <button onClick=${show}>Preview</button>`}</div>
    ${mayNot === null ? html`<p class="dim">An offset, a time as 2026-01-31T12:00, an age as 2h, earliest or latest. The preview changes nothing.</p>`
      : rights.isKnown && topicRights.isKnown && html`<p class="dim">You may not reset these offsets: you need the right Read on ${mayNot}.</p>`}
    <${Trouble} problem=${problem} />
    ${preview && html`<${Table} keyOf=${(one) => one.partition} rows=${preview.offsets} empty="Nothing would change." columns=${[
      ["partition", (one) => one.partition, "number"], ["now", (one) => count(one.before), "number"], ["then", (one) => count(one.offset), "number"],
      ["change", (one) => (one.before === null ? "–" : moved(one.offset - one.before)), "number"],
    ]} />${reset({ group, rights, path, body: { topic, to }, done: () => { setPreview(null); done(); } })}`}`;
}

function moved(by) {
  return by === 0 ? "stays" : by > 0 ? `skips ${count(by)}` : `reads ${count(-by)} again`;
}

function reset({ group, rights, path, body, done }) {
  if (!rights.writes) return html`<p class="dim">This page only reads. Do it with <code>pqbroker group reset ${group.name} ${body.topic} --to ${body.to}</code>, or set pqbroker.console.writes.</p>`;
  if (group.member_count > 0) return html`<p class="dim">Stop its members first: they would overwrite the offsets, so a group with members is not reset.</p>`;
  return html`<${Change} label="Reset" method="POST" path=${path} body=${body} danger confirm=${group.name} done=${done} />`;
}
