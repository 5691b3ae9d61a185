"""Charts, rendered as SVG by the server."""
