"""Which machines are described for those who do not have them? Start reading at `k20-pcie.toml`."""
