// The box above a table of settings leaves the rows that hold every word typed into it.
document.addEventListener("DOMContentLoaded", () => {
  const box = document.getElementById("filter");
  if (!box) return;
  const rows = [...box.closest("section").querySelectorAll("table:last-of-type tbody tr")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/);
    rows.forEach((row, i) => (row.hidden = !words.every((word) => texts[i].includes(word))));
  });
});
