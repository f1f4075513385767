"""What every measurement here shares: the machine, the record, intervals, memory traffic."""
