"""How does the static page come about? Start reading at `page`."""
