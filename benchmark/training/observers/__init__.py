"""What stands beside a run, a file for each: saves, evidence, speed, guards, records. Listed in observer_list.py."""
