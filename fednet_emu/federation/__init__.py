"""What an algorithm sees: devices, links, training, deferred values, gathering, evaluation, inboxes."""
