"""Pictures as SVG, made on the server: shapes in attributes, colours by class, words escaped."""
