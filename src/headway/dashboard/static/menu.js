// The menu: beside a wide page it stands open, above a narrow one it is opened when it is wanted.
export function keepMenu() {
  const menu = document.getElementById("menu");
  const wide = matchMedia("(min-width: 46rem)");
  const fit = () => { menu.open = wide.matches; };
  wide.addEventListener("change", fit);
  fit();
}
