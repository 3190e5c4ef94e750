// Who is logged in to this page: the cookie is the browser's, the page token is kept here, and goes with each change.
import { html, useState } from "/console/vendor/htm-preact.js";

const PATH = "/v1/login";
const HEADER = "X-Pqbroker-Page-Token";
let pageToken = null;

/** Headers that a request which changes something must have. */
export function tokenFor(method) {
  return pageToken === null || method === "GET" ? {} : { [HEADER]: pageToken };
}

/** {required, user}: whether the broker serves only who has logged in, and who has. */
export async function whoIsIn() {
  return taken(await fetch(PATH));
}

export async function logOut() {
  return taken(await fetch(PATH, { method: "DELETE", headers: tokenFor("DELETE") }));
}

async function logIn(user, password) {
  const body = JSON.stringify({ user, password });
  return taken(await fetch(PATH, { method: "POST", headers: { "Content-Type": "application/json" }, body }));
}

async function taken(response) {
  const document = await response.json();
  if (!response.ok) throw new Error(`${document.error.message}. ${document.error.cure}`);
  pageToken = document.page_token;
  return document;
}

/** The form; `onIn` gets what `whoIsIn` returns. */
export function LoginForm({ onIn }) {
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const send = async (event) => {
    event.preventDefault();
    const { user, password } = event.target.elements;
    setBusy(true);
    try {
      onIn(await logIn(user.value, password.value));
    } catch (error) {
      setProblem(error.message);
    }
    setBusy(false);
  };
  return html`<main class="login"><h1>pqbroker</h1>
    <form onSubmit=${send}>
      <label>User <input name="user" autocomplete="username" required autofocus /></label>
      <label>Password <input name="password" type="password" autocomplete="current-password" required /></label>
      <button disabled=${isBusy}>Log in</button>
    </form>
    ${problem && html`<div class="problem" role="alert">${problem}</div>`}</main>`;
}
