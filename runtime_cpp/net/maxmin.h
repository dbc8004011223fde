// Weighted max-min fairness over shared edges, solved incrementally after changes.
//
// A stream crosses edges; on edge e it uses `share` bytes of capacity per byte of its own rate (1 on
// its path, a few per cent on the way back for acknowledgements). The rates are the weighted max-min
// ones: raise a common level, rate = level * weight, until an edge is full or a stream meets its
// cap; such streams are fixed, the others continue (Bertsekas and Gallager, Data Networks, 6.5).
//
// Re-solving everything at each start and end of a stream would make a simulation quadratic. A
// solution is max-min exactly if every stream is at its cap or crosses a full edge on which no other
// stream has a higher level. So after a change only the streams whose limiting edge was touched are
// solved, all others held fixed; then the touched edges are checked against that condition, streams
// that violate it join, and it is solved again. A stream that a distant change cannot reach is
// never visited. If that does not converge in a few rounds, the whole connected component is
// solved.
//
// Priority classes are strict: the lowest is filled first, the next one gets what that leaves on each
// edge, and so on. Classes may be negative.
//
// Invariant, checked at every solve: no touched edge carries more than its capacity (1e-9 relative);
// std::logic_error with the figures otherwise. Deterministic: the same calls give the same bits.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/digest.h"
#include "net/id_list.h"

namespace geomx::net {

using EdgeId = std::uint32_t;
using StreamId = std::uint32_t;

struct Hop {
  EdgeId edge = 0;
  double share = 1.0;
};

class MaxMin {
 public:
  // `capacity` in bytes/s, may be infinite. Throws std::invalid_argument if negative or NaN.
  EdgeId AddEdge(double capacity);

  // Adds an idle stream over `hops`; an edge that occurs twice counts with the sum of its shares.
  StreamId AddStream(std::span<const Hop> hops, int priority_class = 0);

  // Gives the stream another route and class. It is idle afterwards: its demand is forgotten.
  void MoveStream(StreamId stream, std::span<const Hop> hops, int priority_class);

  void SetCapacity(EdgeId edge, double capacity);

  // Sets the stream's weight and the most that it can use (bytes/s). A cap of 0 removes it from the
  // sharing.
  void SetDemand(StreamId stream, double weight, double cap);

  // Computes the rates after any number of changes. Returns the streams whose rate has changed, in
  // the order of their ids; valid until the next call.
  const IdList& Solve();

  // Adds the state that future rates depend on, such as the order of an edge's members, in which
  // sums are computed.
  void Describe(Digest& digest) const;

  bool dirty() const {
    return !dirty_edges_.empty() || !dirty_streams_.empty() || !noted_.empty();
  }
  double rate(StreamId stream) const { return streams_[stream].rate; }  // may be infinite
  double capacity(EdgeId edge) const { return edges_[edge].capacity; }
  double Load(EdgeId edge) const;                                       // bytes/s in use
  // Returns true if the edge decides the rate of a stream: only its capacity can raise that rate.
  bool Limits(EdgeId edge) const;
  std::size_t edges() const { return edges_.size(); }

  // How often a stream's rate was computed, for benchmarks.
  std::uint64_t work() const { return work_; }

 private:
  static constexpr std::int32_t kNoEdge = -1;  // limited by its own cap, or by nothing

  struct Member {
    StreamId stream;
    std::uint32_t hop;
  };
  struct Edge {
    double capacity;
    std::vector<Member> members;   // active streams
    // Scratch of one solve; valid where the stamp is the current one.
    double free = 0.0, weight = 0.0;
    std::uint32_t open = 0;
    std::uint64_t filled = 0, touched = 0, spread = 0;
    bool dirty = false;
  };
  struct StreamHop {
    EdgeId edge;
    double share;
    std::uint32_t position;        // in the edge's members while active
  };
  // The fields that are read of all members of an edge come first, to be in one cache line or two.
  struct Stream {
    double rate = 0.0, level = 0.0;
    std::uint64_t chosen = 0;                  // a stamp
    std::int32_t priority_class;
    std::int32_t bottleneck = kNoEdge;
    std::uint32_t first_hop, hop_count, hop_room;  // room: for hops of another way
    bool active = false, dirty = false, open = false;
    double weight = 1.0, cap = 0.0, before = 0.0;
    std::uint64_t noted = 0;                   // a stamp
  };
  struct Level {
    double value;
    EdgeId edge;
  };

  std::span<StreamHop> Hops(const Stream& stream) {
    return {hops_.data() + stream.first_hop, stream.hop_count};
  }
  std::span<const StreamHop> Hops(const Stream& stream) const {
    return {hops_.data() + stream.first_hop, stream.hop_count};
  }
  double Share(const Member& member) const {
    return hops_[streams_[member.stream].first_hop + member.hop].share;
  }
  void SetHops(Stream& stream, std::span<const Hop> hops, int priority_class);
  void Activate(StreamId id);
  void Deactivate(StreamId id);
  void Note(StreamId id);                      // remembers the rate before this solve
  void MarkEdge(EdgeId edge);
  void Choose(StreamId id);                    // adds to the set being solved
  void Touch(EdgeId edge);
  void SolveClass(int priority_class);
  void ChooseComponent(int priority_class);
  void Fill(int priority_class);               // progressive filling of the chosen set
  void Freeze(StreamId id, double level, std::int32_t bottleneck);
  void Weigh(Edge& edge) const;                // sums its open streams' weights
  bool Expand(int priority_class);             // adds violators; false if there is none

  std::vector<Edge> edges_;
  std::vector<Stream> streams_;
  std::vector<StreamHop> hops_;
  std::vector<int> classes_{0};                // that streams have had, in ascending order
  IdList dirty_edges_, dirty_streams_;
  IdList chosen_;                              // streams
  IdList touched_;                             // edges to check in this class
  IdList filling_;                             // edges of the chosen set
  IdList noted_;                               // streams whose former rate is in `before`
  IdList changed_;                             // streams
  std::vector<Level> heap_;
  IdList by_cap_;                              // streams
  std::uint64_t fill_stamp_ = 0, class_stamp_ = 0, solve_stamp_ = 1;
  std::uint64_t work_ = 0;
};

}  // namespace geomx::net
