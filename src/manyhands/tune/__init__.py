"""Which plan, batch size, rate and loader processes are best? Start reading at `plan.choose` or `batch_size`."""
