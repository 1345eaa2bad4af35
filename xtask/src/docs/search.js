// Finds headings of the site. Without it everything else works.

const box = document.getElementById("search");
const input = box.querySelector("input");
const list = document.getElementById("found");
let index = null;

// A page opened as a file may not read others; then there is no search.
if (location.protocol.startsWith("http")) box.hidden = false;
// On a narrow screen the contents begin closed.
if (matchMedia("(max-width: 60rem)").matches) document.querySelector(".contents").open = false;

input.addEventListener("input", async () => {
  index ??= await fetch("index.json").then((answer) => answer.json());
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = ({ text, page }) => words.every((word) => `${page} ${text}`.toLowerCase().includes(word));
  const found = words.length ? index.filter(fits).slice(0, 12) : [];
  list.replaceChildren(...found.map(entry));
  list.hidden = found.length === 0;
});
input.addEventListener("keydown", (event) => {
  if (event.key === "Enter") list.querySelector("a")?.click();
  if (event.key === "Escape") list.hidden = true;
});

function entry({ to, text, page }) {
  const link = Object.assign(document.createElement("a"), { href: to, textContent: text });
  const item = document.createElement("li");
  item.append(link);
  if (page !== text) item.append(" ", Object.assign(document.createElement("small"), { textContent: page }));
  return item;
}
