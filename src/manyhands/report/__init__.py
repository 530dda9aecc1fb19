"""How are runs and studies shown? Start reading at `gather`, then `page.page` or `text.markdown`."""
