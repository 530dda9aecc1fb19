"""Who is this rank, and who are the others? Start reading at `rank_info`; `rank_group` is what training talks to."""
