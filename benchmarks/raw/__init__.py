"""The raw limits: what the databases can do with the house's drivers when nothing but the rows is left.

The rows are those that Headway keeps for a job. Enqueue: job, event. Claim: job update, run, event. Finish: job
update, run update, event, result. The indexes are the few that such a queue cannot do without. No handlers, no JSON
of params, no event loop: a ratio against these is what all of Headway's Python costs.
"""
