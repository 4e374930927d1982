// Shows the status of the process.
const response = await fetch("/status");
document.getElementById("status").textContent = JSON.stringify(await response.json(), null, 2);
