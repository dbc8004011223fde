// What a server takes from its peers about shards: the experiment is law.
//
// Where the experiment declares its shards (NodeConfig::declared), everything else is refused. Where a
// training script declares them, a shard is settled by its initial value, which comes through
// the master's side, or from the global server; nothing can be pushed before. Requests may come
// earlier: they are noted as claims, take little memory, and are judged when the shard is settled.
// Thus the member with the wrong shape is refused, even if its message was the first.
//
// Memory is bounded by the shards of the experiment: a child may have `kMostClaims` unsettled claims
// for each of its workers, and ask as often as there are shards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/archive.h"
#include "core/message.h"
#include "core/types.h"

namespace geomx {

class Node;

// What is settled, or claimed, about one shard.
struct ShardTerms {
  struct Claim {
    NodeId by = 0;
    ShardInfo info;

    void Exchange(Archive& archive) { archive(by, info); }
  };
  ShardInfo info;     // `elements` is 0 until it is settled
  NodeId set_by = 0;  // the node that `info` is from; the server itself: the experiment
  std::vector<Claim> claims;

  bool settled() const { return info.elements > 0; }
  void Exchange(Archive& archive) { archive(info, set_by, claims); }
};

class Admission {
 public:
  explicit Admission(Node& node) : node_(node) {}

  // Returns the reason to refuse the first transfer of a flow; empty if there is none. `terms` is
  // null if the shard is unknown here.
  std::string Objection(NodeId from, const Header& header, const ShardTerms* terms) const;

  // Settles a shard by a value that has passed `Objection`. Returns the children whose claims it
  // refutes, which are reported to the driver.
  std::vector<NodeId> Settle(NodeId from, const Header& header, ShardTerms& terms);
  // Returns true if `header` says what is settled. Otherwise the peer is reported to the driver.
  bool Agrees(NodeId from, const Header& header, const ShardTerms& terms);

  // A child asks for the value of a shard; `terms` is null if the shard is unknown here, `shards` is
  // how many are known. Returns false if it must not; it is then reported to the driver.
  bool MayAsk(NodeId child, const Header& header, const ShardTerms* terms, std::size_t shards);
  // Notes what a child claims about an unsettled shard. Returns true if the request is to be passed
  // on, as no other was to that global server.
  bool Claim(NodeId child, const Header& header, ShardTerms& terms);

  void Exchange(Archive& archive) { archive(claims_, requests_); }

 private:
  static constexpr std::uint32_t kMostClaims = 1u << 18;
  static constexpr std::uint32_t kHeardBefore = 3;  // changes of members

  std::string Mismatch(NodeId from, const Header& header, const ShardTerms& terms) const;

  Node& node_;
  std::map<NodeId, std::uint64_t> claims_, requests_;  // by child
};

}  // namespace geomx
