"""The console: the page that browsers get at `/`, its scripts and styles. It shows what the routes under /v1 answer."""
