// Users with their tokens, access rules, quotas: seen and changed as far as the caller may.
import { html, useState } from "/console/vendor/htm-preact.js";
import { name, useDoor, useRights } from "/console/doors.js";
import { Change, Empty, Pager, Table, Trouble } from "/console/parts.js";
import { count, moment } from "/console/units.js";

// Name, title, and the right on the cluster without which a tab shows nothing; everybody has tokens of one's own.
const TABS = [["users", "Users", "describe"], ["rules", "Rules", "describe"], ["quotas", "Quotas", "describe_configs"], ["tokens", "Tokens"]];
const LIMIT = 100;

export function Access({ tab }) {
  const rights = useRights();
  if (!rights.isKnown) return html`<h2>Access</h2>`;
  const tabs = TABS.filter(([, , right]) => right === undefined || rights.has("cluster", right));
  return html`<${Tabs} tabs=${tabs} tab=${tab ?? tabs[0][0]} rights=${rights} />`;
}

function Tabs({ tabs, tab, rights }) {
  const Shown = { users: Users, tokens: Tokens, rules: Rules, quotas: Quotas }[tab];
  return html`<h2>Access</h2>
    <div class="tabs">${tabs.map(([each, title]) => html`<a href=${`#/access/${each}`} aria-current=${each === tab ? "page" : null}>${title}</a>`)}</div>
    ${Shown ? html`<${Shown} key=${tab} rights=${rights} />` : html`<${Empty}>There is no page ${tab}.<//>`}
    ${!rights.writes && html`<p class="dim">This page only reads. To change something from here, start the broker with <code>--set pqbroker.console.writes=true</code>.</p>`}`;
}

/** One page of a list door: {trail, data, problem, reload, go}. */
function usePages(path) {
  const [trail, go] = useState([]);
  const after = trail[trail.length - 1];
  return { trail, go, ...useDoor(`${path}?limit=${LIMIT}${after !== undefined ? `&after=${name(after)}` : ""}`, 5) };
}

function Field({ label, value, set, ...more }) {
  return html`<label>${label} <input value=${value} onInput=${(event) => set(event.target.value)} ...${more} /></label>`;
}

function Choice({ label, value, set, words }) {
  return html`<label>${label} <select value=${value} onChange=${(event) => set(event.target.value)}>${words.map((each) => html`<option value=${each}>${each.replaceAll("_", " ")}</option>`)}</select></label>`;
}

function Users({ rights }) {
  const { trail, go, data, problem, reload } = usePages("/v1/users");
  const [open, setOpen] = useState(null);
  const may = rights.may("cluster", "alter");
  const done = () => { setOpen(null); reload(); };
  const columns = [
    ["user", (one) => html`<code>${one.name}</code>`, "name"], ["super user", (one) => (one.super ? html`<b>yes</b>` : "no")],
    ["mechanisms", (one) => html`<span class="dim">${one.mechanisms.map((each) => each.name).join(", ")}</span>`, "text"],
    ["created", (one) => moment(one.created), "time"],
    ["", (one) => may && html`<button aria-expanded=${one.name === open} aria-label=${`Change ${one.name}`} onClick=${() => setOpen(one.name === open ? null : one.name)}>Change</button>`],
  ];
  return html`<${Trouble} problem=${problem} />
    ${data && html`<${Table} keyOf=${(one) => one.name} rows=${data.users} empty="There are no users." columns=${columns}
      detail=${(one) => may && one.name === open && html`<${OneUser} key=${one.name} user=${one} done=${done} />`} />
      <${Pager} trail=${trail} next=${data.next} go=${go} />`}
    ${may && html`<h3>New user</h3><${NewUser} done=${reload} />`}`;
}

function OneUser({ user, done }) {
  const [password, setPassword] = useState("");
  const path = `/v1/users/${name(user.name)}`;
  return html`<div class="bar"><${Field} label="new password" type="password" autocomplete="new-password" value=${password} set=${setPassword} />
      ${password && html`<${Change} label="Set the password" method="PUT" path=${path} body=${() => ({ password })} done=${done} />`}</div>
    <div class="bar"><${Change} label=${user.super ? "Take its super rights away" : "Make it a super user"} quiet confirm=${user.name} method="PUT" path=${path} body=${{ super: !user.super }} done=${done} />
      <${Change} label="Remove this user" danger confirm=${user.name} method="DELETE" path=${path} done=${done} /></div>
    <p class="dim">Connections of a user that is removed last until they end; over HTTP it ends at once, with its tokens.</p>`;
}

function NewUser({ done }) {
  const [user, setUser] = useState("");
  const [password, setPassword] = useState("");
  const made = () => { setUser(""); setPassword(""); done(); };
  return html`<div class="bar"><${Field} label="name" autocomplete="off" value=${user} set=${setUser} />
    <${Field} label="password" type="password" autocomplete="new-password" value=${password} set=${setPassword} />
    ${user && password && html`<${Change} label="Make the user" method="PUT" path=${`/v1/users/${name(user)}`} body=${() => ({ password })} done=${made} />`}</div>`;
}

function Tokens({ rights }) {
  const { trail, go, data, problem, reload } = usePages("/v1/tokens");
  const [note, setNote] = useState("");
  const [made, setMade] = useState(null);
  const isOwn = (one) => one.user === rights.user;
  const mayRevoke = (one) => rights.writes && (isOwn(one) || rights.has("cluster", "alter"));
  const columns = [
    ["token", (one) => html`<code>${one.id}</code>`, "name"], ["user", (one) => one.user], ["note", (one) => one.note, "text"],
    ["created", (one) => moment(one.created), "time"], ["expires", (one) => (one.expires === null ? html`<span class="dim">never</span>` : moment(one.expires)), "time"],
    ["", (one) => mayRevoke(one) && html`<${Change} label="Revoke" quiet danger confirm=${one.id.slice(0, 4)} method="DELETE" path=${`/v1/tokens/${name(one.id)}`} done=${reload} />`],
  ];
  const done = (answer) => { setMade(answer.token); setNote(""); reload(); };
  return html`<${Trouble} problem=${problem} />
    ${data && html`<${Table} keyOf=${(one) => one.id} rows=${data.tokens} empty="There are no tokens." columns=${columns} /><${Pager} trail=${trail} next=${data.next} go=${go} />`}
    ${rights.writes && rights.user !== "ANONYMOUS" && html`<h3>New token for ${rights.user}</h3>
      <div class="bar"><${Field} label="note" value=${note} set=${setNote} /><${Change} label="Make the token" method="POST" path="/v1/tokens" body=${() => ({ note })} done=${done} /></div>`}
    ${made && html`<p>The token, which is shown once: <code>${made}</code></p>`}`;
}

const KINDS = ["topic", "group", "transactional_id", "cluster"];
const OPERATIONS = ["read", "write", "create", "delete", "alter", "describe", "describe_configs", "alter_configs", "cluster_action", "idempotent_write", "all"];
const RULE = { kind: "topic", name: "", pattern: "literal", principal: "User:", operation: "read", permission: "allow", host: "*" };

function Rules({ rights }) {
  const { trail, go, data, problem, reload } = usePages("/v1/acls");
  const may = rights.may("cluster", "alter") && data?.enabled;
  const keyOf = (one) => Object.values(one).join(" ");
  const columns = [
    ["", (one) => html`<b class=${one.permission === "deny" ? "bad" : "good"}>${one.permission}</b>`], ["principal", (one) => html`<code>${one.principal}</code>`, "name"],
    ["operation", (one) => one.operation.replaceAll("_", " ")], ["on", (one) => one.kind.replaceAll("_", " ")],
    ["name", (one) => html`<code>${one.name}${one.pattern === "prefixed" ? "…" : ""}</code>`, "name"], ["from", (one) => (one.host === "*" ? html`<span class="dim">everywhere</span>` : one.host)],
    ["", (one) => may && html`<${Change} label="Remove" quiet danger confirm=${one.operation} method="DELETE" path=${`/v1/acls?${new URLSearchParams(one)}`} done=${reload} />`],
  ];
  return html`<${Trouble} problem=${problem} />
    ${data && !data.enabled && html`<${Empty}>Everybody may do everything: this broker was started without <code>authorizer.class.name</code>.<//>`}
    ${data?.unreadable.length > 0 && html`<div class="problem" role="alert">${count(data.unreadable.length)} stored rules are unreadable, so super users alone are served: ${data.unreadable[0]}</div>`}
    ${data?.enabled && html`<${Table} keyOf=${keyOf} rows=${data.acls} empty="There are no rules: super users alone may do something, unless the settings say otherwise." columns=${columns} />
      <${Pager} trail=${trail} next=${data.next} go=${go} />`}
    ${may && html`<h3>New rule</h3><${NewRule} done=${reload} />`}`;
}

function NewRule({ done }) {
  const [rule, setRule] = useState(RULE);
  const [refusal, setRefusal] = useState(null);
  const set = (field) => (value) => setRule((before) => ({ ...before, [field]: value }));
  const isCluster = rule.kind === "cluster";
  const body = () => ({ acls: [isCluster ? { ...rule, name: "kafka-cluster", pattern: "literal" } : rule] });
  const made = (answer) => { setRefusal(answer.results[0].error); done(); };
  return html`<div class="bar"><${Choice} label="permission" value=${rule.permission} set=${set("permission")} words=${["allow", "deny"]} />
      <${Field} label="principal" value=${rule.principal} set=${set("principal")} /><${Choice} label="operation" value=${rule.operation} set=${set("operation")} words=${OPERATIONS} />
      <${Choice} label="on" value=${rule.kind} set=${set("kind")} words=${KINDS} />
      ${!isCluster && html`<${Choice} label="name is" value=${rule.pattern} set=${set("pattern")} words=${["literal", "prefixed"]} /><${Field} label="name" value=${rule.name} set=${set("name")} />`}
      <${Field} label="from" value=${rule.host} set=${set("host")} />
      ${(rule.name || isCluster) && rule.principal.length > "User:".length && html`<${Change} label="Add the rule" method="POST" path="/v1/acls" body=${body} done=${made} />`}</div>
    <${Trouble} problem=${refusal} />`;
}

const RATES = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"];

function Quotas({ rights }) {
  const { trail, go, data, problem, reload } = usePages("/v1/quotas");
  const may = rights.may("cluster", "alter_configs");
  const rows = (data?.quotas ?? []).flatMap(({ entity, quotas }) => Object.entries(quotas).map(([key, value]) => ({ entity, key, value })));
  const columns = [
    ["for", (one) => entityText(one.entity), "name"], ["quota", (one) => one.key.replaceAll("_", " ")], ["at most", (one) => count(one.value), "number"],
    ["", (one) => may && html`<${Change} label="Remove" quiet danger confirm=${one.key.split("_")[0]} method="PATCH" path="/v1/quotas" body=${{ entity: one.entity, quotas: { [one.key]: null } }} done=${reload} />`],
  ];
  return html`<${Trouble} problem=${problem} />
    ${data && html`<${Table} keyOf=${(one) => `${JSON.stringify(one.entity)} ${one.key}`} rows=${rows} empty="There are no quotas." columns=${columns} /><${Pager} trail=${trail} next=${data.next} go=${go} />
      <p class="dim">Clients were slowed down for ${Object.entries(data.throttled_ms).map(([key, ms]) => `${count(ms)} ms by ${key.replaceAll("_", " ")}`).join(", ") || "0 ms"} since the start.</p>`}
    ${may && html`<h3>New quota</h3><${NewQuota} done=${reload} />`}`;
}

/** A name of null is the default of those that have no quota by name. */
function entityText(entity) {
  const words = { user: "user", client_id: "client", ip: "address" };
  return Object.keys(words).filter((each) => each in entity).map((each) => html`<span>${words[each]} ${entity[each] === null ? html`<span class="dim">default</span>` : html`<code>${entity[each]}</code>`} </span>`);
}

function NewQuota({ done }) {
  const [kind, setKind] = useState("user");
  const [of, setOf] = useState("");
  const [key, setKey] = useState(RATES[0]);
  const [value, setValue] = useState("");
  const keys = kind === "ip" ? RATES.slice(-1) : RATES.slice(0, -1);
  const chosen = keys.includes(key) ? key : keys[0];
  const body = () => ({ entity: { [kind]: of || null }, quotas: { [chosen]: Number(value) } });
  const made = () => { setOf(""); setValue(""); done(); };
  return html`<div class="bar"><${Choice} label="for a" value=${kind} set=${setKind} words=${["user", "client_id", "ip"]} /><${Field} label="name" placeholder="default" value=${of} set=${setOf} />
    <${Choice} label="quota" value=${chosen} set=${setKey} words=${keys} /><${Field} label="at most" inputmode="decimal" value=${value} set=${setValue} />
    ${value.trim() !== "" && Number.isFinite(Number(value)) && html`<${Change} label="Set the quota" method="PATCH" path="/v1/quotas" body=${body} done=${made} />`}</div>`;
}
