startTheme(document.getElementById("theme"));
startTabs(
  document.getElementById("tabs"),
  document.getElementById("panels"),
  JSON.parse(document.getElementById("data").textContent),
);
