"""Unmodified launch scripts of GeoMX and MXNet, run by ``geomx compat -- COMMAND``.

Such a script starts every process of a job itself and assigns its role by environment variables.
`command` runs the script with `hook` on ``PYTHONPATH``, so that ``import mxnet`` in any of its
processes leads to `import_hook`: a worker gets MXNet with our store behind ``mx.kv.create``
(`store`); any other process serves (`serving`) and exits, as under GeoMX.

The variables name one scheduler per party and one for the parties' servers. Our runtime has a
single scheduler, and settings that are fixed when a job begins. Therefore processes first meet at
the addresses in their variables (`rendezvous`), exchange their roles (`roles`) and settings
(`variables`), and the first scheduler creates from these the job (`job`) that all of them join.
"""
