/* Puts the page together, and listens to the server. */
(function () {
  "use strict";
  const weft = window.weft;
  const by = (id) => document.getElementById(id);
  if (location.search) history.replaceState(null, "", location.pathname);  // the token has become a cookie

  const dialog = by("report"), frame = by("report-frame"), wait = by("report-wait");
  weft.report = async (id) => {
    frame.hidden = true;
    wait.hidden = false;
    dialog.showModal();
    try {
      const found = await weft.ask("POST", `/api/plans/${id}/files`, { what: "report" });
      if (!dialog.open) return;
      frame.src = found.href + "?view";
      frame.hidden = false;
      wait.hidden = true;
    } catch (error) {
      dialog.close();
      throw error;
    }
  };
  by("report-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => frame.removeAttribute("src"));

  function link(text, kind) {
    by("link").textContent = text;
    by("link").className = `chip ${kind}`;
  }

  async function start() {
    const choices = await weft.ask("GET", "/api/choices");
    let wanted = null;
    const detail = weft.detail(choices);
    const list = weft.list(detail.show, (ids) => compare(ids));
    const compare = weft.compare();
    const form = weft.form(choices, (id) => {
      wanted = id;
      if (list.get(id)) show(id);
    });
    function show(id) {
      wanted = null;
      list.select(id);
      if (window.innerWidth < 940) by("detail").scrollIntoView({ block: "start" });
    }
    const events = new EventSource("/api/events");
    events.addEventListener("open", () => link("connected", "good"));
    events.addEventListener("error", () => link("not connected", "warn"));
    events.addEventListener("state", (event) => {
      const state = JSON.parse(event.data);
      form.known(state.models);
      list.keep(state.plans);
    });
    events.addEventListener("gone", (event) => list.forget(JSON.parse(event.data)));
    events.addEventListener("plan", (event) => {
      const news = JSON.parse(event.data);
      list.hear(news);
      if (news.id === wanted) show(news.id);
    });
    setInterval(() => document.hidden || detail.tick(), 200);
    document.documentElement.dataset.ready = "yes";
  }

  start().catch((error) => {
    link("not connected", "warn");
    weft.say(error.message, true);
  });
})();
