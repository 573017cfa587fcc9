// What stands in the facts is data: it becomes text, never markup.

const facts = JSON.parse(document.getElementById("facts").textContent);
const isEmbedded = window.top !== window.self;
const AT_A_TIME = 100; // runs in the list, before "show more"
const IN_TIMELINE = 25;
const HAND = 8; // of those that need one, before the list
const OLD_SECONDS = 1800; // of a page that nobody promised to write again
const ENDINGS = { died: "killed", failed: "failed", refused: "failed", unavailable: "failed", "never ran": "failed", finished: "finished" };

const byId = (id) => document.getElementById(id);

function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 36 * 3600) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} d`;
}

const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
const number = (value) => value === null || value === undefined ? "" : Number(value.toPrecision(10)).toLocaleString("en");
const moment = (milliseconds) => new Date(milliseconds).toLocaleString([], { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const utc = (text) => Date.parse(text);

function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let place = 0;
  while (count >= 1000 && place < units.length - 1) { count /= 1000; place += 1; }
  return `${count.toFixed(place && count < 100 ? 1 : 0)} ${units[place]}`;
}

// A link from a file leads beside it; the copy inside another page has nothing beside it.
const link = (href, text) => href && !isEmbedded ? el("a", { href }, text) : el("span", {}, text);

function table(title, columns, rows) {
  const head = el("tr", {}, ...columns.map(([name, kind]) => el("th", { scope: "col", class: kind }, name)));
  const body = rows.map((row) => el("tr", {}, ...row.map((cell, place) => el("td", { class: columns[place][1] }, cell))));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
    el("table", {}, el("caption", {}, title), el("thead", {}, head), el("tbody", {}, ...body)));
}

// What the colors and signs of a chart mean; where colors are not seen, the numbers say it.
function legend(rows, endings = []) {
  const kinds = facts.kinds.filter(([, words]) => rows.some((row) => row.kind === words)).map(([key, words]) => {
    const square = el("i", { "aria-hidden": "true" });
    square.style.background = `var(--${key})`;
    return el("span", {}, square, words);
  });
  const signs = [["killed", "\u271a"], ["failed", "\u25bc"], ["finished", "\u25cf"]].filter(([how]) => endings.some((row) => row.how === how));
  return el("figcaption", { class: "legend" }, ...kinds, ...signs.map(([how, sign]) => el("span", {}, `${sign} ${how}`)));
}

function figure(name, makeSpec, columns, rows, title, caption = null) {
  const chart = el("div", { class: "chart", "data-chart": name });
  const data = el("details", { class: "data" }, el("summary", {}, `${title}: the numbers`));
  data.addEventListener("toggle", () => { if (data.open && data.childElementCount === 1) data.append(table(title, columns, rows())); });
  const made = el("figure", {}, chart, caption, data);
  // A chart takes the width of its place in the page, so it is drawn once it has one.
  queueMicrotask(() => draw(chart, makeSpec));
  return made;
}

// ---- what is chosen, kept in the address so that it outlives a reload

const chosen = { q: "", state: "", order: "", since: "", open: new Set(), limit: AT_A_TIME };

function readChoice() {
  const said = new URLSearchParams(isEmbedded ? "" : location.hash.slice(1));
  for (const name of ["q", "state", "order", "since"]) chosen[name] = said.get(name) ?? "";
  chosen.limit = Number(said.get("limit")) || AT_A_TIME;
  chosen.open = new Set(said.getAll("open"));
  if (!said.has("open") && facts.runs.length === 1) chosen.open.add(facts.runs[0].name);
}

function keepChoice() {
  if (isEmbedded) return;
  const said = new URLSearchParams();
  for (const name of ["q", "state", "order", "since"]) if (chosen[name]) said.set(name, chosen[name]);
  if (chosen.limit !== AT_A_TIME) said.set("limit", chosen.limit);
  for (const name of chosen.open) said.append("open", name);
  if (!chosen.open.size && facts.runs.length === 1) said.append("open", "");
  history.replaceState(null, "", `#${said}`);
}

const orders = {
  name: (a, b) => a.name.localeCompare(b.name, "en", { numeric: true }),
  left: (a, b) => (a.left ?? Infinity) - (b.left ?? Infinity),
  lost: (a, b) => (b.account?.seconds.lost ?? 0) - (a.account?.seconds.lost ?? 0),
};

function chosenRuns() {
  const wanted = chosen.q.toLowerCase();
  const found = facts.runs.filter((run) => run.name.toLowerCase().includes(wanted) && (!chosen.state || run.state === chosen.state));
  return orders[chosen.order] ? found.sort(orders[chosen.order]) : found;
}

// ---- the page from top to bottom

function showHead() {
  document.title = `${facts.name}: unbroken`;
  byId("title").textContent = facts.name;
  byId("folder").textContent = facts.folder;
  byId("footer").textContent = `unbroken ${facts.version}. Times are in the time zone of this browser.`;
}

function showAge() {
  const seconds = Math.max(Date.now() / 1000 - facts.written, 0);
  const due = facts.promise.seconds;
  const works = facts.runs.some((run) => run.state === "working");
  const isOld = due ? seconds > Math.max(3 * due, due + 120) : works && seconds > OLD_SECONDS;
  const isOverdue = isOld && !isEmbedded;
  let words = `Written ${duration(seconds)} ago, ${moment(facts.written * 1000)}.`;
  if (isEmbedded) words = `As it was on ${moment(facts.written * 1000)}.`;
  else if (isOverdue && due) words += ` OVERDUE: ${facts.promise.writer} should have written it again. What this page says may no longer be so: type unbroken status`;
  else if (isOverdue) words += " OLD: what this page says may no longer be so. Type unbroken report";
  else if (due) words += ` ${facts.promise.writer} writes it again at least every ${duration(due)}; it reloads itself.`;
  byId("age").classList.toggle("overdue", isOverdue);
  if (byId("age").textContent !== words) byId("age").textContent = words;
}

function sums() {
  const seconds = {};
  let [kills, kept] = [0, 0];
  for (const { account } of facts.runs) {
    if (!account) continue;
    for (const [kind, value] of Object.entries(account.seconds)) seconds[kind] = (seconds[kind] ?? 0) + value;
    kills += account.kills;
    kept += account.kept;
  }
  return { seconds, kills, kept };
}

function accountRows(seconds) {
  const whole = Object.values(seconds).reduce((sum, value) => sum + value, 0);
  return facts.kinds.filter(([key]) => seconds[key]).map(([key, words], place) => ({
    kind: words, seconds: seconds[key], place, length: duration(seconds[key]), share: percent(seconds[key] / whole),
  }));
}

function killWords({ kills, seconds, kept }) {
  if (!kills) return "";
  return `${kills} ${kills === 1 ? "kill" : "kills"} cost ${duration(seconds.lost ?? 0)}; without checkpoints: ${duration(kept)}`;
}

function accountFigure(account, title) {
  const rows = accountRows(account.seconds);
  if (!rows.length) return el("p", { class: "dim" }, "No time was spent yet.");
  const words = rows.map((row) => `${row.kind} ${row.share}`).join(", ");
  return figure("account", () => accountSpec(rows, facts.kinds, `${title}: ${words}`),
    [["spent on", ""], ["time", "number"], ["share", "number"]], () => rows.map((row) => [row.kind, row.length, row.share]), title, legend(rows));
}

function showTotals() {
  const found = sums();
  const counts = facts.states.map((state) => [state, facts.runs.filter((run) => run.state === state).length]).filter(([, count]) => count);
  const card = (value, words) => el("div", { class: "card" }, el("b", {}, value), words);
  const cards = counts.map(([state, count]) => card(String(count), state));
  const whole = Object.values(found.seconds).reduce((sum, value) => sum + value, 0);
  if (whole) cards.push(card(duration(found.seconds.useful ?? 0), "of useful work"));
  byId("totals").replaceChildren(...cards);
  if (!whole || facts.runs.length < 2) return;
  byId("totals").append(el("div", { class: "wide" }, el("p", {}, killWords(found)), accountFigure(found, "Where the time of all runs went")));
}

function showWhatNeedsAHand() {
  const needy = facts.runs.filter((run) => run.needs_a_hand);
  byId("hand").hidden = !needy.length;
  const item = (run) => {
    const button = el("button", { type: "button" }, run.name);
    button.addEventListener("click", () => openRun(run.name));
    return el("li", {}, button, ` ${run.state}: ${run.advice}`);
  };
  byId("hand-list").replaceChildren(...needy.slice(0, HAND).map(item));
  if (needy.length > HAND) byId("hand-list").append(el("li", { class: "dim" }, `and ${needy.length - HAND} more, first in the list below`));
}

function endingsOf(run) {
  return (run.attempts ?? []).filter((each) => ENDINGS[each.kind]).map((each) => ({
    run: run.name, at: utc(each.ended), how: ENDINGS[each.kind], what: each.why || each.message, done: each.to,
  }));
}

function spanRows(run) {
  return run.spans.map(([kind, begin, end]) => ({
    run: run.name, kind: facts.kinds[kind][1], begin: begin * 1000, end: end * 1000, length: duration(end - begin),
  }));
}

function timelineFigure(name, runs, title, since) {
  const rows = runs.flatMap(spanRows);
  const from = since ? (facts.written - since) * 1000 : -Infinity;
  const seen = rows.filter((row) => row.end > from).map((row) => ({ ...row, begin: Math.max(row.begin, from) }));
  if (!seen.length) return el("p", { class: "dim" }, "Nothing was done in this time.");
  const endings = runs.flatMap(endingsOf).filter((row) => row.at >= from);
  return figure(name, () => timelineSpec(seen, endings, facts.kinds, `${title}: ${runs.length} runs, ${endings.filter((row) => row.how === "killed").length} kills`),
    [["run", ""], ["from", ""], ["to", ""], ["spent on", ""], ["time", "number"]],
    () => seen.map((row) => [row.run, moment(row.begin), moment(row.end), row.kind, row.length]), title, legend(seen, endings));
}

function showTimeline() {
  const found = chosenRuns().filter((run) => run.spans?.length).slice(0, IN_TIMELINE);
  const left = facts.runs.length - found.length;
  // Of a single run it stands in the list below.
  byId("time").hidden = facts.runs.length < 2 || !facts.runs.some((run) => run.spans?.length);
  if (byId("time").hidden) return;
  byId("timeline").replaceChildren(timelineFigure("timeline", found, "Timeline", Number(chosen.since)),
    left ? el("p", { class: "dim" }, `${found.length} of ${facts.runs.length} runs: the first of the list below.`) : "");
}

function summaryOf(run) {
  const goal = run.goal === null ? "" : ` of ${number(run.goal)}`;
  const done = run.done === null ? "" : `${number(run.done)}${goal} ${run.unit}`;
  const share = run.goal && run.done !== null ? Math.min(run.done / run.goal, 1) : null;
  const ending = run.state === "finished" ? "" : run.finish || (run.left ? `about ${duration(run.left)} left` : "");
  return el("summary", {}, el("strong", {}, run.name),
    el("span", { class: `state ${run.state.replaceAll(" ", "-")}${run.doubts.length ? " doubted" : ""}` }, run.doubts.length ? `${run.state}, with doubts` : run.state),
    el("span", {}, share === null ? "" : el("progress", { max: "1", value: share, "aria-label": `${run.name}: ${percent(share)}` }),
      el("span", { class: "dim" }, done)),
    el("span", { class: run.budget ? "warn" : "dim" }, `segments ${run.used}/${run.segments ?? "?"}${ending ? `; ${ending}` : ""}`));
}

function attemptsTable(run) {
  const rows = [...run.attempts].reverse().map((each) => [
    link(each.log, String(each.segment)), each.why || each.kind, `${number(each.from)} → ${number(each.to)}`,
    duration(each.work), each.node + (each.job ? `, job ${each.job}` : ""), moment(utc(each.began)), each.is_told ? each.message : "",
  ]);
  const title = run.attempts_made > rows.length ? `The last ${rows.length} of ${run.attempts_made} attempts` : "Attempts, the newest first";
  return table(title, [["segment", ""], ["ended", ""], [run.unit || "progress", ""], ["work", "number"], ["where", ""], ["began", ""], ["why", "text"]], rows);
}

function checkpointsTable(run) {
  const rows = run.checkpoints.map((each) => [
    link(each.passport, each.name), moment(utc(each.made)), number(each.done), bytes(each.bytes), each.is.join(", "), each.host, each.versions, each.parent,
  ]);
  return table("Checkpoints that are kept, with their manifests",
    [["checkpoint", ""], ["made", ""], [run.unit || "progress", "number"], ["size", "number"], ["is", ""], ["host", ""], ["versions", ""], ["goes back to", ""]], rows);
}

function progressFigure(run) {
  const points = run.points.map(([at, done]) => ({ at: at * 1000, done }));
  const now = facts.written * 1000;
  const [low, median, , high] = (run.forecast ?? []).map((seconds) => now + seconds * 1000);
  const fan = run.forecast && run.goal !== null ? { from: now, done: run.done, goal: run.goal, low, median, high } : null;
  const bad = endingsOf(run).filter((row) => row.how !== "finished");
  const words = `Progress of ${run.name}: ${number(run.done)} of ${number(run.goal)} ${run.unit}${run.finish ? `; ${run.finish}` : ""}`;
  return figure("progress", () => progressSpec(points, bad, fan, run.goal, run.unit, words),
    [["time", ""], [run.unit || "progress", "number"]], () => points.map((row) => [moment(row.at), number(row.done)]), "Progress");
}

function curveFigures(run) {
  const made = run.curves.map((curve) => {
    const points = curve.points.map(([at, value]) => ({ at, value }));
    const last = points.findLast((row) => row.value !== null);
    return el("div", {}, el("h3", {}, curve.name),
      figure("curve", () => curveSpec(points, curve.over, curve.name, `${curve.name} over ${curve.over}, at last ${number(last.value)}`),
        [[curve.over, "number"], [curve.name, "number"]], () => points.map((row) => [number(row.at), row.value === null ? "not a number" : String(row.value)]), curve.name));
  });
  return el("div", { class: "curves" }, ...made);
}

function bodyOf(run) {
  const saved = run.checkpoint_age === null ? "no checkpoint yet" : `the newest checkpoint is ${duration(run.checkpoint_age)} old`;
  const parts = [el("p", { class: `advice ${run.needs_a_hand || run.doubts.length ? "bad" : ""}` }, run.advice), run.note ? el("p", {}, run.note) : "", run.output ? el("p", { class: "dim" }, run.output) : "",
    el("p", { class: "dim" }, `${run.engine ? `engine ${run.engine}; ` : ""}${saved}`)];
  if (run.account) parts.push(el("h3", {}, "Where the time went"), el("p", {}, killWords(run.account)), accountFigure(run.account, "Where the time went"));
  if (!run.attempts) {
    if (run.account) parts.push(el("p", { class: "dim" }, "Too many runs to show each in full: ", el("code", {}, `unbroken report ${run.name}`)));
    return parts;
  }
  if (run.points.length > 1) parts.push(el("h3", {}, "Progress"), progressFigure(run));
  if (run.spans.length) parts.push(el("h3", {}, "Timeline"), timelineFigure("life", [run], `Timeline of ${run.name}`, 0));
  if (run.curves.length) parts.push(curveFigures(run));
  if (run.attempts.length) parts.push(el("h3", {}, "Attempts"), attemptsTable(run));
  if (run.checkpoints.length) parts.push(el("h3", {}, "Checkpoints"), checkpointsTable(run));
  parts.push(el("div", { class: "type" }, el("h3", {}, "Type"),
    ...run.type.map(([line, what]) => el("p", {}, el("code", {}, line), ` ${what}`))));
  const links = Object.entries(run.links).map(([name, href]) => link(href, name));
  if (links.length) parts.push(el("p", {}, "Open: ", ...links.flatMap((each, place) => place ? [", ", each] : [each])));
  return parts;
}

function detailsOf(run) {
  const body = el("div", { class: "body" });
  const made = el("details", { class: "run", "data-run": run.name }, summaryOf(run), body);
  made.addEventListener("toggle", () => {
    chosen.open[made.open ? "add" : "delete"](run.name);
    keepChoice();
    if (made.open && !body.childElementCount) body.append(...bodyOf(run).filter((part) => part !== ""));
  });
  made.open = chosen.open.has(run.name);
  return made;
}

function showRuns() {
  const found = chosenRuns();
  byId("runs").replaceChildren(...found.slice(0, chosen.limit).map(detailsOf));
  const all = facts.runs.length === 1 ? "1 run" : `${facts.runs.length} runs`;
  byId("count").textContent = found.length === facts.runs.length ? all : `${found.length} of ${all}`;
  byId("more").hidden = found.length <= chosen.limit;
  byId("more").textContent = `Show ${Math.min(found.length - chosen.limit, AT_A_TIME)} more`;
}

function openRun(name) {
  Object.assign(chosen, { q: name, state: "", limit: AT_A_TIME });
  chosen.open.add(name);
  byId("filters").elements.q.value = name;
  byId("filters").elements.state.value = "";
  choose();
  byId("filters").scrollIntoView();
  document.querySelector("#runs summary")?.focus({ preventScroll: true });
}

function choose() {
  keepChoice();
  showTimeline();
  showRuns();
}

function listen() {
  const filters = byId("filters"), since = byId("since");
  for (const state of facts.states) {
    if (facts.runs.some((run) => run.state === state)) filters.elements.state.append(el("option", { value: state }, state));
  }
  for (const name of ["q", "state", "order"]) filters.elements[name].value = chosen[name];
  since.elements.since.value = chosen.since;
  for (const form of [filters, since]) {
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", (event) => {
      chosen[event.target.name] = event.target.value;
      chosen.limit = AT_A_TIME;
      choose();
    });
  }
  byId("more").addEventListener("click", () => { chosen.limit += AT_A_TIME; choose(); });
}

// ---- a page that is written again and again reloads itself, and stays where it was

const PLACE = "unbroken-place";

function reloadLater() {
  if (isEmbedded || !facts.promise.seconds) return;
  setTimeout(() => {
    try { sessionStorage.setItem(PLACE, String(window.scrollY)); } catch { /* the browser keeps nothing: it begins at the top */ }
    location.reload();
  }, Math.min(facts.promise.seconds, 60) * 1000);
}

function goBackToPlace() {
  try {
    const place = sessionStorage.getItem(PLACE);
    sessionStorage.removeItem(PLACE);
    if (place) requestAnimationFrame(() => setTimeout(() => window.scrollTo(0, Number(place)), 50));
  } catch { /* as above */ }
}

readChoice();
showHead();
showAge();
showTotals();
showWhatNeedsAHand();
listen();
showTimeline();
showRuns();
goBackToPlace();
setInterval(showAge, 5000);
reloadLater();
