"""The observers of a run, one file each: saves, evidence, speed, guards, records. Listed in observer_list.py."""
