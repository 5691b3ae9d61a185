// The menu: open beside a wide page, closed above a narrow one.
export function keepMenu() {
  const menu = document.getElementById("menu");
  const wide = matchMedia("(min-width: 46rem)");
  const fit = () => { menu.open = wide.matches; };
  wide.addEventListener("change", fit);
  fit();
}
