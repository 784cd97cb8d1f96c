"""A swarm of seeds: each draws a whole scenario, plays it in several ways, and checks laws that hold for all."""
