"""How do ranks start, meet and talk? Start reading at `launch.elastic` (starting) and `rendezvous` (meeting)."""
