"use strict";
// The key stays in the memory of the page: a reload asks for it again.
(() => {
  const [form, field, note] = ["key", "field", "note"].map(id => document.getElementById(id));

  async function show(key) {
    const answer = await fetch("/openapi.json", { headers: key ? { "X-API-Key": key } : {} });
    if (!answer.ok) {
      form.hidden = false;
      note.value = answer.status !== 401 ? `The server answers with ${answer.status}.`
        : key ? "This is not a key of this server." : "This server needs an API key.";
      field.focus();
      return;
    }
    form.hidden = true;
    const viewer = SwaggerUIBundle({
      spec: await answer.json(), dom_id: "#viewer", deepLinking: true, docExpansion: "list", filter: true,
      defaultModelsExpandDepth: 0, validatorUrl: null, tryItOutEnabled: true,
      onComplete: () => { if (key) viewer.preauthorizeApiKey("key", key); },
    });
  }

  function failed(error) {
    form.hidden = false;
    note.value = `The server cannot be asked: ${error.message}`;
  }

  form.addEventListener("submit", event => {
    event.preventDefault();
    show(field.value.trim()).catch(failed);
  });
  show("").catch(failed);
})();
