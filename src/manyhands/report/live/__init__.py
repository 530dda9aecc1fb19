"""How is the live page served? Start reading at `serve`, then `app` and `index`."""
