"""GeoMX's and MXNet's own launch scripts, unmodified: what ``geomx compat -- COMMAND`` does.

Such a script starts every process of a job itself and tells it by environment variables what to be.
`command` runs it with `hook` on ``PYTHONPATH``, so that ``import mxnet`` in any of its processes
comes to `entrance`: a worker gets MXNet with our store behind ``mx.kv.create`` (`store`), anything
else serves (`serving`) and exits, as GeoMX's did.

The variables name one scheduler for every party and one for the parties' servers. Our runtime has
one scheduler, and settings that are final when a job begins. So processes first meet where their
variables say (`meeting`), tell each other who they are (`roles`) and what they want (`variables`),
and from that the first scheduler makes the job (`job`) that all of them join.
"""
