/* Requests to the server, and words to the user. */
(function () {
  "use strict";
  const weft = window.weft;

  /* weft.ask("POST", "/api/plans", {...}) -> its JSON; an Error with the server's sentence otherwise. */
  weft.ask = async (method, address, body) => {
    const options = { method };
    if (body !== undefined) {
      options.body = JSON.stringify(body);
      options.headers = { "content-type": "application/json" };
    }
    let answer;
    try {
      answer = await fetch(address, options);
    } catch {
      throw new Error("The server does not answer. Is weftline ui still running?");
    }
    return weft.read(answer.status, await answer.text());
  };

  weft.read = (status, text) => {
    let found = null;
    try {
      found = text ? JSON.parse(text) : null;
    } catch {
      found = null;
    }
    if (status >= 200 && status < 300) return found;
    throw new Error((found && found.error) || text || `The server refused (${status}).`);
  };

  /* A short message that goes away by itself; an error stays until it is closed. */
  weft.say = (text, lasting) => {
    const close = weft.make("button", { "aria-label": "Close this message" }, "✕");
    const toast = weft.make("div", {}, weft.make("span", {}, text), close);
    close.addEventListener("click", () => toast.remove());
    document.getElementById("toasts").append(toast);
    if (!lasting) setTimeout(() => toast.remove(), 5000);
  };

  /* Saves a file of this server. */
  weft.save = (address) => {
    const link = weft.make("a", { href: address, download: "" });
    document.body.append(link);
    link.click();
    link.remove();
  };

  /* Saves a text that only this page has. */
  weft.saveText = (name, text) => {
    const address = URL.createObjectURL(new Blob([text], { type: "application/toml" }));
    const link = weft.make("a", { href: address, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  };

  weft.option = (value, text) => weft.make("option", { value }, text);
})();
