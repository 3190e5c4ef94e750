// The frame: where we are, the menu, the keyboard. A page is a function of the parts of its address.
import { html, render, useEffect, useRef, useState } from "/console/vendor/htm-preact.js";
import { onFigures, useDoor, useRights } from "/console/doors.js";
import { LoginForm, logOut, whoIsIn } from "/console/logins.js";
import { Access } from "/console/pages/access.js";
import { Api } from "/console/pages/api.js";
import { Cells } from "/console/pages/cells.js";
import { Clients } from "/console/pages/clients.js";
import { Group, Groups } from "/console/pages/groups.js";
import { Overview } from "/console/pages/overview.js";
import { Partition } from "/console/pages/partition.js";
import { Settings } from "/console/pages/settings.js";
import { Sql } from "/console/pages/sql.js";
import { Storage } from "/console/pages/storage.js";
import { OneTable, Tables } from "/console/pages/tables.js";
import { Tablet, Tablets } from "/console/pages/tablets.js";
import { Topic } from "/console/pages/topic.js";
import { Topics } from "/console/pages/topics.js";
import { Tour } from "/console/pages/tour.js";
import { Transactions } from "/console/pages/transactions.js";
import { moment } from "/console/units.js";

// Name, title, key, and the right on the cluster without which nothing is on the page.
const MENU = [
  ["overview", "Overview", "o", "describe"], ["topics", "Topics", "t"], ["groups", "Groups", "g"], ["tables", "Tables", "l"], ["transactions", "Transactions", "x"], ["sql", "SQL", "q"],
  ["clients", "Clients", "c", "describe"], ["cells", "Cells", "d", "describe"], ["tablets", "Tablets", "b", "describe"], ["storage", "Storage", "s", "describe"],
  ["access", "Access", "u"], ["settings", "Settings", "e", "describe_configs"], ["api", "API", "a"],
];

const PAGES = {
  overview: () => html`<${Overview} />`,
  topics: (topic, what, partition) => {
    if (topic === undefined) return html`<${Topics} />`;
    if (what === "partitions" && partition !== undefined) return html`<${Partition} topic=${topic} partition=${partition} />`;
    return html`<${Topic} key=${topic} topic=${topic} tab=${what ?? "partitions"} />`;
  },
  groups: (group) => (group === undefined ? html`<${Groups} />` : html`<${Group} key=${group} group=${group} />`),
  tables: (table) => (table === undefined ? html`<${Tables} />` : html`<${OneTable} key=${table} table=${table} />`),
  transactions: () => html`<${Transactions} />`,
  sql: (query) => html`<${Sql} query=${query} isPlan=${false} />`,
  explain: (query) => html`<${Sql} query=${query} isPlan=${true} />`,
  tablets: (tablet) => (tablet === undefined ? html`<${Tablets} />` : html`<${Tablet} key=${tablet} tablet=${tablet} />`),
  storage: () => html`<${Storage} />`,
  clients: (tab) => html`<${Clients} tab=${tab} />`,
  cells: () => html`<${Cells} />`,
  tour: () => html`<${Tour} />`,
  access: (tab) => html`<${Access} tab=${tab} />`,
  settings: () => html`<${Settings} />`,
  api: () => html`<${Api} />`,
};

function parts() {
  return location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decoded);
}

/** A part of an address; as it stands where somebody has typed what is no encoding. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function useAddress() {
  const [address, setAddress] = useState(parts());
  useEffect(() => {
    const moved = () => setAddress(parts());
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return address;
}

/** `g` and a letter goes to a page, `/` to the search field, Escape out of it. */
function useKeys() {
  useEffect(() => {
    let isGo = false;
    const pressed = (event) => {
      const isTyping = ["INPUT", "TEXTAREA", "SELECT"].includes(event.target.tagName);
      if (event.key === "Escape") return event.target.blur();
      if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return undefined;
      if (event.key === "/") {
        const field = document.querySelector("[data-search]");
        if (field) {
          event.preventDefault();
          field.focus();
        }
      } else if (isGo) {
        const found = MENU.find(([, , letter]) => letter === event.key);
        if (found) location.hash = `#/${found[0]}`;
      }
      isGo = !isGo && event.key === "g";
      return undefined;
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

function switchTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
  dispatchEvent(new Event("colours"));
}

/** Everything that is wrong with the node, on each page: what, where, since when, and the cure. */
function Conditions({ conditions }) {
  return conditions.map((one) => html`<div key=${`${one.kind} ${one.place}`} class=${`condition ${one.severity}`} role="status">
    <b>${one.kind}</b> ${one.place}, since ${moment(one.since)}: ${one.cause}. <span>Affects ${one.affects}. To cure it: ${one.cure}.</span></div>`);
}

/** The console, or the form before it. */
function Entrance() {
  const [login, setLogin] = useState(null);
  useEffect(() => {
    const look = () => whoIsIn().then(setLogin, () => setTimeout(look, 3000));
    look();
    addEventListener("login", look);
    return () => removeEventListener("login", look);
  }, []);
  if (login === null) return null;
  if (login.required && login.user === null) return html`<${LoginForm} onIn=${setLogin} />`;
  return html`<${App} user=${login.user} onOut=${() => logOut().then(() => location.reload())} />`;
}

function App({ user, onOut }) {
  const address = useAddress();
  const [isCut, setCut] = useState(false);
  const [conditions, setConditions] = useState(null);
  const rights = useRights();
  const isBegun = useRef(false);
  const isShown = ([, , , right]) => right === undefined || rights.has("cluster", right);
  const node = useDoor(rights.has("cluster", "describe") ? "/v1/node" : "", 10).data;
  useKeys();
  useEffect(() => onFigures((figures) => {
    setCut(figures === null);
    if (figures?.conditions) setConditions(figures.conditions);
  }), []);
  const [first, ...rest] = address.length ? address : [rights.has("cluster", "describe") ? "overview" : "topics"];
  const page = Object.hasOwn(PAGES, first) ? PAGES[first] : null;
  const isIn = (name) => name === (first === "explain" ? "sql" : first);
  if (rights.isKnown) isBegun.current = true;
  if (!isBegun.current && !isCut) return null; // which page comes first depends on the caller's rights
  document.title = `${rest[0] ?? MENU.find(([name]) => isIn(name))?.[1] ?? "?"} · pqbroker`;
  return html`<div class="shell">
    <nav>
      <h1>pqbroker</h1>
      <div class="node">${node ? html`node ${node.node}, ${node.version}` : ""}</div>
      ${MENU.filter(isShown).map(([name, title, letter]) => html`<a href=${`#/${name}`} aria-current=${isIn(name) ? "page" : null}>${title}<kbd aria-hidden="true">${letter}</kbd></a>`)}
      <div class="foot">${user !== null && html`<p>${user} <button onClick=${onOut}>Log out</button></p>`}
        <button onClick=${switchTheme}>Dark or light</button>
        <p><kbd>g</kbd> and a page's letter goes to it, <kbd>/</kbd> to the search.</p></div>
    </nav>
    <main>
      ${isCut && html`<div class="banner" role="status">The broker does not answer. This page continues when it is back.</div>`}
      <${Conditions} conditions=${conditions ?? node?.conditions ?? []} />
      ${page ? page(...rest) : html`<h2>There is no page ${first}</h2>`}
    </main>
  </div>`;
}

const theme = localStorage.getItem("theme");
if (theme) document.documentElement.dataset.theme = theme;
render(html`<${Entrance} />`, document.getElementById("app"));
