#include "core/admission.h"

#include <algorithm>

#include "core/node.h"

namespace geomx {
namespace {

std::string NameOf(const Header& header) {
  return "key " + std::to_string(header.key) + " (piece " + std::to_string(header.shard) + ")";
}

bool Same(const ShardInfo& info, const ShardInfo& other) {
  return info.elements == other.elements && info.offset == other.offset && info.server == other.server;
}

bool OtherName(const ShardInfo& info, const ShardInfo& other) {
  return info.name != other.name && info.name != 0 && other.name != 0;
}

}  // namespace

std::string Admission::Mismatch(NodeId from, const Header& header, const ShardTerms& terms) const {
  const NodeConfig& config = node_.config();
  const auto name = [&](NodeId id) {
    const Peer* found = node_.FindPeer(id);
    return found == nullptr ? config.name : found->name;
  };
  const ShardInfo info = header.shard_info();
  if (OtherName(terms.info, info)) {
    return NameOf(header) + " has another name at " + name(from) + " than at " + name(terms.set_by) +
           ": all workers must initialise the same keys in the same order";
  }
  if (Same(terms.info, info)) return {};
  const std::string elements = NameOf(header) + " has " + std::to_string(header.shard_elements) +
                               " elements at " + name(from);
  if (terms.info.elements == header.shard_elements) {
    return NameOf(header) + " lies elsewhere at " + name(from) + " than at " + name(terms.set_by) +
           ": all workers must cut a key alike";
  }
  return elements + " and " + std::to_string(terms.info.elements) +
         (config.declared ? " in the experiment" : " at " + name(terms.set_by)) +
         ": all workers must give a key the same shape";
}

std::string Admission::Objection(NodeId from, const Header& header, const ShardTerms* terms) const {
  const NodeConfig& config = node_.config();
  if (config.declared) {
    const ShardInfo* declared = config.declared->Find(header.key, header.shard);
    if (declared == nullptr) return NameOf(header) + " is none of this experiment";
    return Mismatch(from, header, {.info = *declared, .set_by = config.id, .claims = {}});
  }
  if (terms != nullptr && terms->settled()) return Mismatch(from, header, *terms);
  if (config.open || header.kind == Kind::kInit) return {};
  if (header.kind == Kind::kValue && terms != nullptr && (header.flags & kPlain) != 0) return {};
  return std::string(KindName(header.kind)) + " of a key that was never initialised";
}

std::vector<NodeId> Admission::Settle(NodeId from, const Header& header, ShardTerms& terms) {
  if (terms.settled()) return {};
  const auto& declared = node_.config().declared;
  const ShardInfo* known = declared ? declared->Find(header.key, header.shard) : nullptr;
  terms.info = known ? *known : header.shard_info();
  terms.set_by = known ? node_.config().id : from;
  const bool relayed = node_.config().role == Role::kGlobalServer;
  std::vector<NodeId> refuted;
  for (const ShardTerms::Claim& claim : std::exchange(terms.claims, {})) {
    --claims_[claim.by];
    if (relayed) continue;
    const Header claimed = ShardHeader(Kind::kPullRequest, claim.info);
    if (std::string wrong = Mismatch(claim.by, claimed, terms); !wrong.empty()) {
      refuted.push_back(claim.by);
      node_.Fail(claim.by, std::move(wrong));
    }
  }
  return refuted;
}

bool Admission::Agrees(NodeId from, const Header& header, const ShardTerms& terms) {
  std::string wrong = Mismatch(from, header, terms);
  if (wrong.empty()) return true;
  node_.Fail(from, std::move(wrong));
  return false;
}

// A worker asks for a shard once, and a local server once for each time that its party was without
// workers; twice as often is no correct child's. Of a few such times the child may have heard before this node.
bool Admission::MayAsk(NodeId child, const Header& header, const ShardTerms* terms,
                       std::size_t shards) {
  const NodeConfig& config = node_.config();
  const auto fail = [&](std::string reason) {
    node_.Fail(child, std::move(reason));
    return false;
  };
  if (config.declared) {
    const ShardInfo* declared = config.declared->Find(header.key, header.shard);
    if (declared == nullptr) return fail(NameOf(header) + " is none of this experiment");
    if (!Agrees(child, header, {.info = *declared, .set_by = config.id, .claims = {}})) return false;
  }
  // A local server asks in the words of the worker that asked first, which may be wrong.
  const bool relayed = config.role == Role::kGlobalServer;
  if (!relayed && terms != nullptr && terms->settled() && !Agrees(child, header, *terms)) return false;
  const std::uint64_t changes = config.continues ? std::uint64_t{node_.membership().epoch()} + kHeardBefore : 0;
  const std::uint64_t most = 2 * (shards + 1) * (1 + changes);
  if (++requests_[child] > most) return fail("asks for values again and again");
  if (claims_[child] >= std::uint64_t{kMostClaims} * node_.StandsFor(child)) {
    return fail("asks for too many keys that were never initialised");
  }
  return true;
}

bool Admission::Claim(NodeId child, const Header& header, ShardTerms& terms) {
  if (terms.settled()) return true;
  const auto same = [&](const ShardTerms::Claim& claim) { return claim.info.server == header.server; };
  const bool fresh = std::none_of(terms.claims.begin(), terms.claims.end(), same);
  const auto by = [&](const ShardTerms::Claim& claim) { return claim.by == child; };
  if (std::none_of(terms.claims.begin(), terms.claims.end(), by)) {
    ++claims_[child];
    terms.claims.push_back({child, header.shard_info()});
  }
  return fresh;
}

}  // namespace geomx
