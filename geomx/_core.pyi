"""
The compiled core of geomx: protocol, WAN model, live driver and native plugin parts.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, overload

import numpy
from numpy.typing import NDArray


HEADER_BYTES: int = 80

MAX_SHARD_ELEMENTS: int = 1073741824

WIRE_VERSION: int = 2

def build_info() -> dict[str, str]:
    """
    What this module was built with, and the vector instructions that it uses here.
    """

class Codec:
    """A codec of the core, by reference."""

class Slicer:
    """A slicer of the core, by reference."""

class Coordinator:
    """A coordinator, by reference."""

class OptimizerFactory:
    """A plugin's optimizer, by reference."""

class PartyPolicy:
    """A party's sync policy, by reference."""

def native_codec(name: str, options: Mapping[str, float]) -> Codec:
    """The compiled codec `name`; ValueError if there is none."""

def codec_by_size(bound: int, small: Sequence[Codec], large: Sequence[Codec]) -> Codec:
    """
    A choice between two chains: shards of at least `bound` elements take the second.
    """

def native_slicer(name: str, options: Mapping[str, float]) -> Slicer:
    """The compiled slicer `name`; ValueError if there is none."""

def native_policy(name: str, options: Mapping[str, float]) -> PartyPolicy:
    """The compiled party policy `name`; ValueError if there is none."""

def natives() -> dict[str, list[str]]:
    """Names of the native parts that were compiled in, by kind."""

class NodeConfig:
    """How one node of the tree is set up; see core/node_config.h."""

    def __init__(self, id: int, name: str, role: str) -> None: ...

    def add_peer(self, id: int, name: str, role: str) -> None: ...

    def add_link(self, peer: int, direction: str, codecs: Sequence[Codec], slicers: Sequence[Slicer], grace_s: float = 0.0) -> None: ...

    def set_policy(self, policy: PartyPolicy) -> None: ...

    @overload
    def add_coordinator(self, number: int, name: str, options: Mapping[str, float]) -> None: ...

    @overload
    def add_coordinator(self, number: int, coordinator: Coordinator) -> None: ...

    def add_optimizer(self, optimizer: OptimizerFactory) -> None:
        """An optimizer of a plugin, which instructions may name."""

    def add_group(self, root: int, members: Sequence[int], host: int, number: int, push: bool, pull: bool, label: str = '') -> None:
        """
        An overlay of which this node is the root or a member; see core/overlay_group.h. `label`: whose
        it is.
        """

    def set_rounds(self, together: bool, staleness_bound: int | None, update_at_party: bool) -> None: ...

    @property
    def parents(self) -> list[int]: ...

    @parents.setter
    def parents(self, arg: Sequence[int], /) -> None: ...

    @property
    def children(self) -> list[int]: ...

    @children.setter
    def children(self, arg: Sequence[int], /) -> None: ...

    @property
    def scheduler(self) -> int | None: ...

    @scheduler.setter
    def scheduler(self, arg: int | None, /) -> None: ...

    @property
    def quorum(self) -> int: ...

    @quorum.setter
    def quorum(self, arg: int, /) -> None: ...

    @property
    def stands_for(self) -> dict[int, int]: ...

    @stands_for.setter
    def stands_for(self, arg: Mapping[int, int], /) -> None: ...

    @property
    def frame_bytes(self) -> int: ...

    @frame_bytes.setter
    def frame_bytes(self, arg: int, /) -> None: ...

    @property
    def bundle(self) -> int: ...

    @bundle.setter
    def bundle(self, arg: int, /) -> None: ...

    @property
    def phantom(self) -> bool: ...

    @phantom.setter
    def phantom(self, arg: bool, /) -> None: ...

    @property
    def continues(self) -> bool: ...

    @continues.setter
    def continues(self, arg: bool, /) -> None: ...

    @property
    def absent(self) -> list[int]: ...

    @absent.setter
    def absent(self, arg: Sequence[int], /) -> None: ...

    @property
    def experiment(self) -> str: ...

    @experiment.setter
    def experiment(self, arg: str, /) -> None: ...

    @property
    def id(self) -> int: ...

    @property
    def name(self) -> str: ...

    def set_device(self, device: str) -> None:
        """
        Where a server updates and encodes; ValueError if there is no such device.
        """

    def set_non_finite(self, rule: str) -> None:
        """What a worker does with a push that holds NaN: warn, refuse or ignore."""

    def set_heartbeat(self, interval_s: float, timeout_s: float) -> None: ...

    def set_recovery(self, patience_s: float, redial_s: float) -> None:
        """
        How long silent peers are waited for (0: not at all), and most time between two calls.
        """

def non_finite_text(worker: str, key: str, round: int, what: str, refused: bool) -> str:
    """A sentence about a push that holds values that are NaN or infinite."""

class Optimizer:
    """
    An optimizer for one tensor: `text` is its name and one 'option value' per line; `plugins`
    are those that may be meant beside the core's own.
    """

    def __init__(self, text: str, key: int, plugins: Sequence[OptimizerFactory] = []) -> None: ...

    def update(self, weight: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')], gradient: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], merge_count: int = 1, source: int = 0) -> None:
        """
        Update `weight` in place; both are float32 vectors of one length. The gradient is the sum
        over `merge_count` workers, pushed by node `source`.
        """

    def save(self) -> bytes:
        """All that later updates depend on besides options and weights."""

    def load(self, saved: bytes, elements: int) -> None:
        """
        Continue from what `save` returned of an optimizer of that name, for a tensor of so many
        elements. RuntimeError if it is damaged or of something else; use another object then.
        """

def optimizers() -> list[str]: ...

def link_effects(codecs: Sequence[Codec], slicers: Sequence[Slicer], elements: int) -> tuple:
    """
    Of a link that has these, for a shard of so many elements: which codecs take part in what is
    sent, and which slicers change how it is cut, as two lists of bool in the order given.
    """

class CodecChain:
    """The codecs of one link for one shard, with their state."""

    def __init__(self, codecs: Sequence[Codec], elements: int) -> None: ...

    @property
    def decodes_on_devices(self) -> bool:
        """Whether what is encoded is decoded where a device's tensors lie."""

    @property
    def on_devices(self) -> bool:
        """Whether all of them encode on a GPU a value that lies there."""

    def layout(self, round: int = 1) -> tuple:
        """
        (rows, bytes) that encoding a value of that round makes, without doing it.
        """

    def encode(self, values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], round: int = 1, rows: int = 0) -> list:
        """
        Encode; a list of (first row, rows, payload), in slices of `rows` rows (0: one slice;
        else a multiple of 8). ValueError if the value has another length.
        """

    def decode(self, payload: bytes, first_row: int, rows: int, total_rows: int, round: int = 1) -> object:
        """
        The dense vector of one slice, zero elsewhere. ValueError if it is no such slice.
        """

    def add(self, payloads: Sequence[bytes], round: int = 1) -> bytes:
        """
        What a server makes of several senders' payloads, one slice each, of a linear chain: their
        sum, still encoded. ValueError if the chain is not linear.
        """

    def settle(self, payload: bytes, round: int = 1) -> None:
        """Tell the codecs of a linear chain what a round came to."""

    @property
    def linear(self) -> bool: ...

    @property
    def survives_holes(self) -> bool: ...

def set_threads(threads: int) -> None:
    """
    How many threads of this process may work on one large array, the caller's included.
    RuntimeError if the system has no more.
    """

def threads() -> int:
    """What `set_threads` was told last; 1 at first."""

def vector_levels() -> list[str]:
    """
    Sets of vector instructions that this build has and this machine can run, ascending.
    """

def vector_level() -> str:
    """The one in use; at first the last of `vector_levels()`."""

def use_vector_level(name: str) -> None:
    """For tests and measurements, while nothing is running."""

def devices() -> list[tuple[str, str]]:
    """
    (name, what it is) of every device that this build has kernels for, the processor first.
    """

def time_device(device: str, elements: int, repeats: int) -> dict:
    """
    Seconds, by repeat, that `elements` float32 values take from a device "to_host", back
    "to_device", and there to be cast to half precision, "encode", and to take a step of an
    optimizer, "update". ValueError if there is no such device.
    """

def describe_tensor(tensor: NDArray) -> tuple:
    """
    Of a DLPack capsule, or an object that gives one: (device type, device number, address,
    shape, type's name, strides in bytes).
    """

class StagedValue:
    """A tensor's values on their way, for Loop.push_value."""

class DeviceStaging:
    """
    Brings tensors of one device to the store and back.

    ValueError if there is no such device. Thread-safe. Of memory of the device, and of pinned memory for
    copies, at most `most_kept` bytes are kept between values. Tensors are contiguous, of float32, float16 or
    bfloat16; streams are CUDA's, as numbers.
    """

    def __init__(self, device: str, most_kept: int = 268435456) -> None: ...

    @property
    def device(self) -> str: ...

    @property
    def stream(self) -> int:
        """The stream that waits for others, for DLPack."""

    @property
    def kept(self) -> int:
        """Bytes of pinned memory that wait for the next copy."""

    def after(self, producer: int) -> None:
        """
        What the stream `producer` has been given so far comes before what is asked for next.
        """

    def fetch(self, address: int, type: str, out: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')]) -> None:
        """Copy a tensor's values into a float32 vector as long as it."""

    def fill(self, values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')], address: int, type: str, owner: object, consumer: int | None = None) -> None:
        """
        Copy float32 values into a tensor, which `owner` keeps alive. The stream `consumer` waits
        for it; without one the caller does.
        """

    def fill_from(self, loop: Loop, key: int, address: int, type: str, elements: int, owner: object, consumer: int | None = None) -> None:
        """
        Likewise a worker's last complete value. Those of later rounds come to the device as they
        are on the wire, if it can decode them.
        """

    def take(self, address: int, type: str, elements: int, owner: object, copy: bool, producer: int | None = None) -> StagedValue:
        """
        A tensor's values, which `owner` keeps alive. With `copy` the tensor may be changed
        afterwards, by the stream `producer` or, without one, in any way.
        """

    def take_sum(self, terms: Sequence[tuple[DeviceStaging, int, str, object, int | None]], elements: int) -> StagedValue:
        """
        The sum of tensors, in their order, which may be changed afterwards likewise: each is
        (the stage of its device, address, type, owner, producer or None).
        """

class BandwidthSchedule:
    """
    The bandwidth of an edge over time, from the start of the run on.

    Made of a bandwidth in bytes/s, and then what changes it; each setter raises ValueError for what
    makes no sense, or would leave the edge down for ever.
    """

    def __init__(self, bytes_per_s: float = float('inf')) -> None: ...

    def set_trace(self, changes: Sequence[tuple[float, float]]) -> None:
        """(seconds, bytes/s) from then on; the last one for ever."""

    def set_redraw(self, every_s: float, low: float, high: float, stream: int) -> None:
        """Uniform between two bandwidths, drawn repeatedly."""

    def add_outage(self, start_s: float, end_s: float, every_s: float = 0.0) -> None:
        """Down for a while, periodically if every_s."""

    def add_failures(self, mean_up_s: float, mean_down_s: float, stream: int) -> None:
        """Alternately up and down, for exponentially distributed times."""

    def at(self, time_s: float) -> float:
        """Bytes/s at a time."""

    def next(self, time_s: float) -> float | None:
        """
        The first time after `time_s` at which it may change; None if there is none.
        """

    def finish(self, from_s: float, bytes: float) -> float:
        """When that many bytes have passed; infinite if never."""

    def carries(self, end_s: float) -> float:
        """Bytes that can pass until then; infinite where it is without limit."""

class LinkModel:
    """
    One direction between two nodes, for Fabric and Shape.

    Edges of the way there and back by id; the congestion control, the number of TCP streams and the
    window of each; payload bytes per byte; loss per packet; round trip, jitter and queue in
    nanoseconds (no queue: no datagram is dropped for being late); and what routers do with datagrams:
    priority (serve them last) or fifo.
    """

    def __init__(self, path: Sequence[int], reverse: Sequence[int], congestion: str = 'bbr', streams: int = 1, window_limit: float = 2750000.0, efficiency: float = 0.9653333333333334, loss: float = 0.0, rtt_ns: int = 0, jitter_ns: int = 0, queue_ns: int | None = None, queueing: str = 'priority') -> None: ...

def fluid_transfers(model: str, schedules: Sequence[BandwidthSchedule], delays_s: Sequence[float], paths: Sequence[Sequence[int]], reverses: Sequence[Sequence[int]], losses: Sequence[float], route: Sequence[int], bytes: Sequence[float], starts_s: Sequence[float]) -> list[float]:
    """Finish times in seconds under a fluid model (maxmin, CM02, LV08)."""

def tcp_transfers(congestion: str, streams: int, window_bytes: float, efficiency: float, reverse_share: float, new_connections: bool, schedules: Sequence[BandwidthSchedule], delays_s: Sequence[float], paths: Sequence[Sequence[int]], reverses: Sequence[Sequence[int]], losses: Sequence[float], route: Sequence[int], bytes: Sequence[float], starts_s: Sequence[float]) -> list[float]:
    """Finish times in seconds under the TCP model."""

class FlowNetwork:
    """Connections as fluid over shared edges; times in integer nanoseconds."""

    def __init__(self) -> None: ...

    def add_edge(self, bytes_per_s: float, delay_ns: int = 0) -> int: ...

    def add_connection(self, path: Sequence[int], reverse: Sequence[int] = [], reverse_share: float = 0.0, weight: float = 1.0, priority_class: int = 0, efficiency: float = 0.9653333333333334, rtt_ns: int = 0, congestion: str = 'bbr', window_bytes: float = 2750000.0) -> int: ...

    def start(self, connection: int, bytes: float, now_ns: int) -> None: ...

    def set_capacity(self, edge: int, bytes_per_s: float, now_ns: int) -> None: ...

    def next_event(self) -> object:
        """When something happens next, in nanoseconds; None if nothing will."""

    def advance(self, now_ns: int) -> list[int]:
        """The connections whose message's last byte left at `now_ns`."""

    def rate(self, connection: int) -> float:
        """Payload bytes/s of a connection."""

    def load(self, edge: int) -> float:
        """Bytes/s that an edge carries."""

    def capacity(self, edge: int) -> float: ...

    def delay(self, connection: int) -> int:
        """One-way delay in nanoseconds."""

    def window(self, connection: int) -> float: ...

    @property
    def solves(self) -> int: ...

class Pace:
    """How long a worker's forward and backward passes take, by layer."""

    def __init__(self, forward_ns: Sequence[int], backward_ns: Sequence[int]) -> None: ...

class PassClock:
    """
    The passes of a worker over its layers, on the clock of a nominal pace: the rules by which
    simulated workers wait and push, with arrivals that were measured. Times are nanoseconds.
    At time 0 all keys' initial values are awaited.
    """

    def __init__(self, layer_of_key: Sequence[int], pace: Pace) -> None: ...

    def forward(self, now_ns: int) -> None:
        """Begin a forward pass; `arrived` carries it out."""

    def backward(self, push: str, last: bool, reports: bool, now_ns: int) -> list[tuple[int, int]]:
        """
        Begin a backward pass and the wait for the next step: (key, ns) of all that it pushes,
        in that order. `arrived` carries it out.
        """

    def awaited(self) -> list[int]:
        """Keys whose values have to be there before the order is carried out."""

    def arrived(self, values: Sequence[tuple[int, int, int]], reply_ns: int = -1) -> int:
        """
        All that was awaited is there: (ns, key, round) of values, and when a reply came. Returns
        when the order was carried out.
        """

    @property
    def now_ns(self) -> int:
        """
        How far the order has been carried out; behind `backward`, the end of the pass.
        """

    def take_spans(self) -> list:
        """
        ("forward", "backward" or "wait", about, start ns, end ns) since this was last asked;
        about is the key and the round that ended a wait.
        """

class Costs:
    """What an endpoint's work takes: seconds per message and per byte."""

    def __init__(self) -> None: ...

    def set(self, work: str, per_message_s: float, per_byte_s: float) -> None: ...

class TrainingPlan:
    """What all workers train."""

    def __init__(self, layers: int, tensors: Sequence[tuple[int, int, Sequence[tuple[int, int, int, int]]]]) -> None:
        """
        The number of layers; (elements, layer, [(offset, elements, server, priority)]) by key.
        """

class Fabric:
    """All nodes of an experiment over the fluid WAN, in virtual time."""

    def __init__(self, seed: int, max_spans: int = 0) -> None: ...

    def add_edge(self, schedule: BandwidthSchedule, delay_ns: int) -> int: ...

    def add_node(self, config: NodeConfig, costs: Costs) -> None: ...

    def share_cores(self, count: int) -> None:
        """All nodes run on one machine with so many cores; 0: each has its own."""

    def connect(self, source: int, target: int, link: LinkModel) -> None:
        """What `source` may send to `target`."""

    def advance(self, limit_ns: int) -> int: ...

    def take_notices(self) -> list:
        """
        (node, kind, key, round, text, reason, values, partial) of everything Python must hear of;
        partial is (shard, workers, global round) of a round that was closed without some.
        """

    def expect_faults(self) -> None:
        """
        Connections will break: to be called after building and before running.
        """

    def cut(self, one: int, other: int, now_ns: int) -> None:
        """
        Nothing passes between two nodes until `heal`; what is under way is lost. Cuts add up.
        """

    def heal(self, one: int, other: int, now_ns: int) -> None:
        """Ends one `cut`."""

    def reconnect(self, one: int, other: int, now_ns: int) -> None:
        """Ends one `cut`; the connection has been there all the time."""

    def pause(self, node: int, duration_ns: int, now_ns: int) -> None:
        """
        A node does not run for so long: it computes nothing, handles nothing and hears no timer.
        """

    def reset(self, one: int, other: int, now_ns: int) -> None:
        """
        The connection between two nodes breaks; what is under way is lost, and sent again.
        """

    def kill(self, node: int, reason: str, now_ns: int) -> None:
        """A node's process dies; the scheduler is told why."""

    def restart(self, config: NodeConfig, now_ns: int) -> None:
        """
        Another process of a node that was killed joins the run; a worker is to be trained anew.
        """

    def leave(self, worker: int, now_ns: int) -> None:
        """A worker has trained: it leaves."""

    def round(self, node: int, key: int) -> int:
        """The round that a worker's last complete value of a tensor belongs to."""

    def report_values(self, report: bool) -> None:
        """Whether every new value at a trainer makes a notice."""

    def command(self, node: int, text: str, now_ns: int) -> None: ...

    def train(self, node: int, plan: TrainingPlan, pace: Pace) -> None:
        """Let a worker train; the fabric executes its loop from now on."""

    def start(self, node: int, master: bool, initial: Sequence[Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]] | None, now_ns: int) -> None:
        """
        Declare and ask for all tensors; the master also gives them. Ends with "ready".
        """

    def forward(self, node: int, now_ns: int) -> None:
        """Begin a forward pass. Ends with "forward"."""

    def backward(self, node: int, push: str, values: Sequence[Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]] | None, loss: float, last: bool, report: tuple[int, int, Sequence[float]] | None, now_ns: int) -> None:
        """
        Begin a backward pass that pushes "nothing", "gradients" as they come or "parameters" at its end. Ends with "ready", when the next step can begin.
        """

    def recurs(self, now_ns: int) -> bool | None:
        """
        Whether the state equals the marked one; None if there is no mark, or it is unknown.
        """

    def mark(self, now_ns: int) -> None:
        """Mark the state that `recurs` saw last."""

    def repeat(self, times: int, now_ns: int) -> None:
        """Count everything since the mark another `times` times."""

    def value(self, node: int, key: int) -> object:
        """A copy of the last complete value of a tensor at a worker."""

    def awaits_reply(self, node: int) -> bool:
        """Whether a worker waits for a coordinator's reply."""

    def waits(self, node: int) -> list[tuple[int, int, int, list[int]]]:
        """
        The values that a worker or a server waits for now, those from the same nodes together:
        (first key, round, number of keys, from which nodes); round 0: the initial value.
        """

    def links(self) -> list:
        """
        (source, target, push, pull, control bytes, busy ns) per directed link; push and pull are
        (bytes, messages).
        """

    def worked(self) -> list[int]:
        """How long each node has worked on messages, in nanoseconds, by its id."""

    def edges_busy(self) -> list[int]:
        """How long each edge had a message under way, in nanoseconds, by its id."""

    def spans(self) -> list:
        """
        (node, peer, category, kind of what is sent, about, start ns, end ns); about is what a
        timeline shows with it: key, shard, round, bytes, channel.
        """

    def node_stats(self, node: int) -> dict: ...

    @property
    def spans_dropped(self) -> int: ...

    @property
    def messages(self) -> int: ...

    @property
    def idle(self) -> bool:
        """Whether nothing is left to happen, at whatever time."""

    @property
    def events(self) -> int: ...

    @property
    def lost_messages(self) -> int: ...

    @property
    def solves(self) -> int: ...

def why_no_namespaces() -> str:
    """
    The reason why network namespaces cannot be created here; empty if they can.
    """

def enter_namespace(fd: int) -> None:
    """
    Take the calling thread, and what it starts, to the namespace that `fd` is open on.
    """

class Router:
    """
    Network namespaces, joined by emulated links.

    Sites, edges and routes first, then start(). IPv4 addresses are numbers. Whatever it made is gone when
    it is, or its process.
    """

    def __init__(self, seed: int) -> None: ...

    def add_site(self, addresses: Sequence[int], settings: Mapping[str, str]) -> int:
        """
        A namespace with these addresses and these files below /proc/sys/net; a descriptor that leads there. RuntimeError where that is not allowed.
        """

    def add_edge(self, schedule: BandwidthSchedule, delay_ns: int, jitter_ns: int, loss: float, queue_bytes: int) -> int:
        """One direction of a link; its id. Loss is per packet."""

    def add_route(self, source: int, target: int, edges: Sequence[int]) -> None:
        """Set the route of packets between two addresses."""

    def start(self) -> None:
        """Forward packets on a separate thread."""

    def set_origin(self, monotonic_s: float) -> None:
        """The run began then; bandwidths change as their schedules say."""

    def stop(self) -> None:
        """End the thread."""

    def counts(self) -> dict:
        """
        Packets by what became of them, and the most that one was late; after stop().
        """

def python_codec(prototype: object, label: str = '') -> Codec:
    """
    A codec whose methods are Python's; see geomx.plugin.Codec. `label`: whose it is.
    """

def python_costs() -> dict[str, tuple[int, float, float]]:
    """
    What calls of plugins' Python objects have cost this process: by label, how many there were,
    seconds in Python, seconds of waiting for the interpreter lock.
    """

def python_calls() -> list[tuple[str, float, int, int]]:
    """
    Calls of plugins' Python objects that are under way: (label: method, seconds so far, thread
    as `threading.get_ident` numbers it, number of the call).
    """

def python_slicer(prototype: object, label: str = '') -> Slicer:
    """
    A slicer whose method is Python's; see geomx.plugin.Slicer. `label`: whose it is.
    """

def python_policy(prototype: object, label: str = '') -> PartyPolicy:
    """A party's policy in Python; see geomx.plugin.PartySync."""

def python_coordinator(prototype: object, seed: float, label: str = '') -> Coordinator:
    """
    A coordinator in Python, told the experiment's seed; see geomx.plugin.Coordinator.
    """

def python_optimizer(name: str, prototype: object, label: str = '') -> OptimizerFactory:
    """
    An optimizer in Python under the name that instructions call it; see geomx.plugin.Optimizer.
    """

def read_overlay_report(numbers: Sequence[float]) -> tuple:
    """A member's report, as geomx.plugin.OverlayReport has it."""

def overlay_order(direction: str, root: int, key: int, shard: int, round: int, target: int) -> list[float]:
    """
    The numbers of an order to send the contribution (push) or the value (pull) to `target`.
    """

CODEC_ABI: int = 1

def library_codec(path: str, options: Mapping[str, float], label: str) -> Codec:
    """
    The codec in a shared library; ValueError if it cannot be loaded. `label`: whose it is.
    """

class Journal:
    """
    The file from which another process can continue a node.

    RuntimeError if it cannot be had, another process has it open, or it is damaged.
    """

    def __init__(self, path: str) -> None: ...

    @property
    def path(self) -> str: ...

    @property
    def begun(self) -> bool:
        """Whether there is a node to continue."""

    @property
    def experiment(self) -> str:
        """What the scheduler told those who joined."""

    @property
    def roster(self) -> dict[str, str]:
        """Addresses by name, the scheduler's too."""

    @property
    def port(self) -> int:
        """Where the node listened."""

    def last_s(self) -> float:
        """
        Read all records; the latest time of any, by the clock of the run in seconds.
        """

def note(loop: Loop, text: str, state: Sequence[bytes]) -> None:
    """
    Record where this worker's application is, and its state, if there is a journal.
    """

def resumed(loop: Loop) -> tuple[list[str], list[bytes], dict[int, int], dict[int, Annotated[NDArray[numpy.float32], dict(shape=(None,))]]] | None:
    """
    Where the application of the killed process was: (its notes, the state of the latest one, and the rounds and values of keys at that moment); None if it has noted nothing. Declare all tensors before, and repeat the calls after the note: those that were made have no effect.
    """

def set_clock_ahead(seconds: float) -> None:
    """Be ahead of time.monotonic() from now on; before any loop is made."""

def clock_s() -> float:
    """Seconds of the clock of the run."""

def send_notices(descriptor: int) -> None:
    """
    Lines for the user go to this file descriptor from now on, and not to standard error.
    """

TAKEN_FOR_LOST: str = 'it was taken for lost: '

class Shape:
    """
    How an emulated network treats one node's messages.

    Edges are this node's own copies of those on its outgoing paths. An edge that others send over too
    has a row in `usage_file`, where each of `slots` nodes writes into a slot of its own. An edge's
    bandwidth is a BandwidthSchedule, or a constant in bytes/s.
    """

    def __init__(self, seed: int = 0, usage_file: str = '', slots: int = 1, slot: int = 0) -> None: ...

    @staticmethod
    def usage_file_bytes(rows: int, slots: int) -> int:
        """Size of that file, which is to be filled with zeros."""

    def add_edge(self, schedule: BandwidthSchedule, delay_ns: int) -> int:
        """An edge on the way out; its id."""

    def add_path(self, target: int, link: LinkModel) -> None:
        """How messages to `target` travel; as Fabric.connect."""

    def share(self, edge: int, row: int) -> None:
        """Others send over `edge`, too."""

class Loop:
    """
    One live node: its port, its connections and the thread that serves them.

    Thread-safe. Once a node of the run is lost, every wait raises RuntimeError("node NAME was lost:
    REASON"), and failure() says the same; TimeoutError means that time was up.
    """

    def __init__(self, host: str = '127.0.0.1', port: int = 0, token: str = '', tls: tuple[str, str, str] | None = None, insecure: bool = False) -> None:
        """
        Binds TCP and UDP on one port (0: any); RuntimeError if that cannot be had, or the token is empty. `tls`: PEM files of the authority, the certificate and its key; all that is sent is then encrypted. Without, only addresses of this machine are listened on, unless `insecure`.
        """

    @property
    def address(self) -> str:
        """host:port, as others reach this node."""

    def join(self, scheduler: str, name: str, id: int | None, timeout_s: float) -> tuple[str, dict[str, str]]:
        """
        Join the run whose scheduler is at host:port: (experiment, addresses by name). Without an id the name says which node this is.
        """

    def run(self, config: NodeConfig, roster: Mapping[str, str], shape: Shape | None, congestion: str = 'bbr', journal: Journal | None = None) -> None:
        """
        Become the node of `config` and connect to its peers, over emulated links if `shape`; over others with this congestion control, where the kernel has it. With a `journal` the node is recorded, and one that was recorded there is continued.
        """

    def wait_started(self, timeout_s: float) -> float:
        """
        Seconds of clock_s() at which everyone was connected: time 0 of the run.
        """

    def cut(self, peer: int) -> None:
        """
        Let nothing pass between this node and a peer until `heal`. Cuts add up.
        """

    def heal(self, peer: int) -> None:
        """End one `cut`."""

    def reset(self, peer: int) -> None:
        """Break the connection with a peer."""

    def leave(self) -> None:
        """Leave the run, which stops when all workers have left."""

    def wait_stopped(self, timeout_s: float) -> bool:
        """Whether the run stopped in time."""

    def failure(self) -> tuple[str, str] | None:
        """(name, reason) of the lost node; None if there is none."""

    def refusals(self) -> list[str]:
        """
        Callers refused since the last call, with reasons; the first hundred of a run.
        """

    @property
    def late(self) -> bool:
        """
        Whether training goes on already, as another process of this node was lost.
        """

    def report_ended(self, name: str, reason: str) -> None:
        """On the scheduler: the process of a member is known to have ended."""

    def members(self) -> list:
        """
        What was told about who takes part since the last call: (monotonic s, kind, names, key, shard, round, global round, workers); kinds: gone, back, takes_part, partial.
        """

    def close(self) -> None:
        """End the thread and all connections. May be called twice."""

    def declare(self, key: int, elements: int, shards: Sequence[tuple[int, int, int, int]], name: str = '') -> None:
        """
        A tensor and its shards: (offset, elements, global server, priority); messages call it `name`.
        """

    def init(self, key: int, array: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)]) -> None:
        """
        Give a tensor its initial value (float32), for everyone; kept, not copied.
        """

    def push_value(self, key: int, value: StagedValue, loss: float = float('nan'), last: bool = False, not_before_s: float = 0.0, absent: bool = False) -> int:
        """
        The same of what a DeviceStaging took: it is encoded on its device as far as codecs can.
        """

    def push(self, key: int, array: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], loss: float = float('nan'), last: bool = False, not_before_s: float = 0.0, absent: bool = False) -> int:
        """
        Contribute to the next round, which is returned. The float32 array is kept, not copied. `absent`: it is zeros, as this worker has nothing to contribute; a round in which no worker has moves nothing.
        """

    def request(self, key: int) -> None:
        """Ask for the current value; it completes the round it belongs to."""

    def wait(self, key: int, round: int, timeout_s: float) -> float:
        """Arrival of the value after `round`, in seconds since the start."""

    def absent(self, key: int) -> bool:
        """Whether no worker contributed to the last complete value."""

    def go_on(self, key: int) -> int:
        """
        The round of the last complete value, from which pushes are counted: for a worker that is late.
        """

    def value(self, key: int, out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')]) -> None:
        """Copy the last complete value into a float32 array."""

    def barrier(self, timeout_s: float) -> None:
        """Wait for all workers."""

    def report(self, host: int, number: int, values: Sequence[float], not_before_s: float = 0.0) -> None:
        """
        Send numbers to the coordinator `number` on node `host`, behind all earlier pushes.
        """

    def wait_reply(self, number: int, timeout_s: float) -> list[float]:
        """The oldest answer not yet taken."""

    def command(self, text: str, unless_given: bool = False) -> None:
        """
        An instruction to all global servers: its name, then lines; on one of them, to itself. `unless_given`: it counts only where there was none before.
        """

    def initialise(self, key: int, index: int, shard: tuple[int, int, int, int], array: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)]) -> None:
        """
        The initial value of a global server's shard: (offset, elements, server, priority).
        """

    def global_value(self, key: int, shard: int) -> object:
        """A global server's value of one shard, or None."""

    def stats(self) -> dict:
        """What was sent to whom, and what the node counted; also after close."""

    def spans(self) -> list:
        """(name, category, start_s, duration_s, what it was about), bounded."""

class MxnetEngine:
    """
    A loop's push and pull as operations of MXNet's engine. `push_async` is the address of MXEnginePushAsyncND. Arrays are given by handle, with the address of their float32 data.
    """

    def __init__(self, loop: Loop, push_async: int) -> None: ...

    def push(self, key: int, data: int, elements: int, array: int, order: int, loss: float, last: bool, not_before_s: float, priority: int) -> None:
        """
        Contribute `array` once it has been written and nothing writes `order`; `array` is not overwritten before its bytes have left.
        """

    def pull(self, key: int, round: int, data: int, elements: int, array: int, priority: int) -> None:
        """Fill `array` with the value of `round`, or a later one, when it comes."""
