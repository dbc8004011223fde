// A global server: sums what the parties push, lets the optimizer (if one was set) turn the sum into
// new weights, and answers every party with the result. Where rounds are not common (GlobalRounds),
// every party's push is applied and answered by itself; where updates happen at the parties, the
// answer is the sum.
#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

#include "core/node.h"
#include "core/replica.h"

namespace geomx {
namespace {

class GlobalServer final : public RoleLogic {
 public:
  explicit GlobalServer(Node& node) : RoleLogic(node), rules_(node.config().rounds) {}

  void OnValue(NodeId peer, const Header& header, Buffer value, Time now) override {
    Shard& shard = this->shard(header);
    if (!SameSize(peer, header, shard)) return;
    if (header.kind == Kind::kInit) return Initialise(header, shard, std::move(value), now);
    if (optimizer_ && !shard.weights.has_value()) {
      return Fail(peer, "push of a key that was never initialised");
    }
    node_.work().aggregate.Add(node_.AddedBytes(header));
    if (rules_.together) {
      Contribute(peer, header, shard, std::move(value), now);
    } else {
      Apply(peer, header, shard, node_.Decoded(header, std::move(value)), now);
    }
  }

  void OnControl(NodeId peer, const Message& message, Time now) override {
    const Header& header = message.header;
    if (header.kind == Kind::kPullRequest) {
      Shard& shard = this->shard(header);
      if (!SameSize(peer, header, shard)) return;
      if (shard.weights.has_value()) return SendPlain(header, shard, {&peer, 1}, now);
      if (std::find(shard.waiting.begin(), shard.waiting.end(), peer) == shard.waiting.end()) {
        shard.waiting.push_back(peer);
      }
    } else if (header.kind == Kind::kCommand) {
      std::vector<std::byte> scratch;
      const auto words = UnpackStrings(message.payload.Contiguous(scratch), 1);
      if (!words) return Fail(peer, "a command that is not one string");
      Obey(words->front());
    } else if (header.kind == Kind::kBye && node_.IsChild(peer)) {  // all workers of a party left
      left_.insert(peer);
      for (const auto& [id, shard] : shards_) CheckLeft(id.first, shard);
    }
  }

  void ListWaits(Waits& waits) const override {
    for (const auto& [id, shard] : shards_) {
      if (!shard.waiting.empty()) waits.Add({.kind = Wait::Kind::kInitial, .key = id.first});
      if (shard.sum.merge_count() > 0) {
        waits.Add({.kind = Wait::Kind::kPush,
                   .whom = shard.sum.Lacking(),
                   .key = id.first,
                   .round = shard.round + 1});
      }
      WaitsOfTheFast(id.first, shard, waits);
    }
  }

  void Describe(Digest& digest) const override {
    for (const auto& [id, shard] : shards_) {
      shard.sum.Describe(digest);
      digest.Count(Digest::Level::kGlobal, shard.round);
      for (const NodeId server : shard.waiting) digest.Add(std::uint64_t{server});
    }
    if (!rules_.together || !left_.empty()) digest.Unknown();
  }

  const Buffer* Value(Key key, std::uint32_t shard) const {
    const auto found = shards_.find({key, shard});
    return found == shards_.end() ? nullptr : found->second.weights.value().get();
  }

 private:
  // A party, where rounds are not common.
  struct Progress {
    Round round = 0;         // its last push that was applied
    std::uint64_t seen = 0;  // updates that its last answer contained
    std::optional<std::pair<Header, Buffer>> held;  // too far ahead to be applied yet
  };
  struct Shard {
    explicit Shard(const NodeConfig& config) : sum(config.children, config.quorum) {}
    Aggregator sum;
    std::uint32_t elements = 0;  // 0: not known yet
    NodeId sized_by = 0;         // who said so
    Replica weights;
    Round round = 0;
    bool present = false;  // a party has contributed to the round more than its absence
    std::uint64_t updates = 0;
    std::map<NodeId, Progress> parties;
    std::vector<NodeId> waiting;  // local servers that asked before there was a value
  };

  Shard& shard(const Header& header) {
    return shards_.try_emplace({header.key, header.shard}, node_.config()).first->second;
  }

  void Fail(NodeId peer, std::string reason) {
    node_.Emit({.kind = Event::Kind::kPeerError, .peer = peer, .reason = std::move(reason)});
  }

  bool SameSize(NodeId peer, const Header& header, Shard& shard) {
    if (shard.elements == 0) {
      shard.elements = header.shard_elements;
      shard.sized_by = peer;
    }
    if (shard.elements == header.shard_elements) return true;
    Fail(peer, node_.SizesDiffer(header, peer, shard.sized_by, shard.elements));
    return false;
  }

  void Initialise(const Header& header, Shard& shard, Buffer value, Time now) {
    if (shard.weights.has_value()) return;  // the first initial value stands
    shard.weights.Set(std::move(value));
    const std::vector<NodeId> waiting = std::exchange(shard.waiting, {});
    SendPlain(header, shard, waiting, now);
  }

  // State of the optimizer before is forgotten. Parties that update get the instruction too.
  void Obey(const std::string& text) {
    try {
      OptimizerSpec spec = ParseInstruction(text, node_.config().optimizers);
      for (auto& [id, shard] : shards_) shard.weights.ForgetOptimizer();
      if (rules_.update_at_party) {
        for (const NodeId child : node_.config().children) {
          node_.SendControl(child, Kind::kCommand, {text});
        }
      } else {
        optimizer_ = std::move(spec);
      }
      node_.Emit({.kind = Event::Kind::kCommand, .text = text.substr(0, text.find('\n'))});
    } catch (const std::invalid_argument& error) {
      node_.Emit({.kind = Event::Kind::kRefused, .text = "optimizer", .reason = error.what()});
    }
  }

  // ---- common rounds ----

  void Contribute(NodeId peer, Header header, Shard& shard, Buffer value, Time now) {
    if (header.round != shard.round + 1) {
      return Fail(peer, "push of round " + std::to_string(header.round) + " in round " +
                            std::to_string(shard.round + 1));
    }
    if (std::string wrong = node_.Miscount(peer, header.merge_count); !wrong.empty()) {
      return Fail(peer, std::move(wrong));
    }
    if (!shard.sum.Fits(header.merge_count)) {
      return Fail(peer, "stands for more workers than there are");
    }
    if (!shard.sum.Alike(value)) return Fail(peer, "encoded unlike what others pushed");
    if (!shard.sum.Add(peer, header.merge_count, std::move(value))) {
      return Fail(peer, "pushed twice in one round");
    }
    shard.present = shard.present || (header.flags & kAbsent) == 0;
    if (!shard.sum.complete()) return CheckLeft(header.key, shard);
    header.flags = std::exchange(shard.present, false) ? 0 : kAbsent;
    // Of all parties: nobody's delay.
    const Contribution from{shard.sum.merge_count(), 0, header.flags != 0};
    Buffer sum = shard.sum.Take();
    ++shard.round;
    if (rules_.update_at_party) {
      auto answer = std::make_shared<const Buffer>(std::move(sum));
      Finish(header, shard.round, from.merge_count, answer, node_.config().children, now);
      return;
    }
    Update(header, shard, node_.Decoded(header, std::move(sum)), from);
    Finish(header, shard.round, from.merge_count, shard.weights.value(), node_.config().children,
           now);
  }

  // ---- rounds of each party's own ----

  void Apply(NodeId peer, const Header& header, Shard& shard, Buffer value, Time now) {
    for (const NodeId child : node_.config().children) shard.parties.try_emplace(child);
    Progress& party = shard.parties.at(peer);
    if (header.round != party.round + 1 || party.held) {
      return Fail(peer, "push of round " + std::to_string(header.round) + " in round " +
                            std::to_string(party.round + 1));
    }
    if (std::string wrong = node_.Miscount(peer, header.merge_count); !wrong.empty()) {
      return Fail(peer, std::move(wrong));
    }
    party.held.emplace(header, std::move(value));
    // One application can let others go, which can let others go.
    for (bool progress = true; progress;) {
      progress = false;
      for (auto& [id, waiting] : shard.parties) {
        if (!waiting.held || TooFarAhead(shard, waiting)) continue;
        auto [its_header, its_value] = std::move(*waiting.held);
        waiting.held.reset();
        ApplyNow(id, its_header, shard, waiting, std::move(its_value), now);
        progress = true;
      }
    }
    CheckLeft(header.key, shard);
  }

  // Parties that are held back wait for the slowest.
  void WaitsOfTheFast(Key key, const Shard& shard, Waits& waits) const {
    Round slowest = UINT32_MAX;
    bool held = false;
    for (const auto& [id, party] : shard.parties) {
      slowest = std::min(slowest, party.round);
      held = held || party.held.has_value();
    }
    if (!held) return;
    Wait wait{.kind = Wait::Kind::kPush, .whom = {}, .key = key, .round = slowest + 1};
    for (const auto& [id, party] : shard.parties) {
      if (party.round == slowest) wait.whom.push_back(id);
    }
    waits.Add(wait);
  }

  bool TooFarAhead(const Shard& shard, const Progress& party) const {
    Round slowest = party.round;
    for (const auto& [id, other] : shard.parties) slowest = std::min(slowest, other.round);
    return party.round - slowest > rules_.staleness_bound;
  }

  void ApplyNow(NodeId peer, const Header& header, Shard& shard, Progress& party, Buffer value,
                Time now) {
    const std::uint64_t staleness = shard.updates - party.seen;
    NodeStats& counts = node_.counts();
    counts.staleness_sum += staleness;
    counts.staleness_max = std::max(counts.staleness_max, staleness);
    ++party.round;
    party.seen = ++shard.updates;
    Update(header, shard, std::move(value),
           {header.merge_count, peer, (header.flags & kAbsent) != 0});
    Finish(header, party.round, header.merge_count, shard.weights.value(), {&peer, 1}, now);
  }

  // ---- both ----

  // Whether somebody waits for a party whose workers have all left, with an answer to all that they
  // pushed: it has no part in a round that is open, and makes no progress any more.
  void CheckLeft(Key key, const Shard& shard) {
    if (left_.empty()) return;
    if (rules_.together) {
      if (shard.sum.merge_count() == 0) return;
      return node_.EndRound(*left_.begin(), shard.round, shard.sum.First(), key, shard.round + 1);
    }
    for (const auto& [id, party] : shard.parties) {
      if (!party.held) continue;
      for (const NodeId gone : left_) {
        const Round reached = shard.parties.at(gone).round;
        if (party.round < reached || party.round - reached <= rules_.staleness_bound) continue;
        return node_.EndRound(gone, reached, id, key, party.round + 1);
      }
    }
  }

  void Update(const Header& header, Shard& shard, Buffer sum, const Contribution& from) {
    node_.work().update.Add(std::uint64_t{header.shard_elements} * sizeof(float));
    shard.weights.Update(std::move(sum), optimizer_, header.key, from, !rules_.together,
                         node_.config().device.get());
  }

  void Finish(Header header, Round round, std::uint32_t merge_count,
              std::shared_ptr<const Buffer> answer, std::span<const NodeId> targets, Time now) {
    ++node_.counts().rounds;
    header.kind = Kind::kValue;
    header.flags &= kAbsent;
    header.round = round;
    header.merge_count = merge_count;
    header.loss = std::numeric_limits<float>::quiet_NaN();
    node_.Emit({.kind = Event::Kind::kUpdated,
                .key = header.key,
                .shard = header.shard,
                .round = round});
    const float* data = answer->empty() ? nullptr : answer->data();
    node_.SendValue(targets, Direction::kPull, header, data, answer, now);
  }

  void SendPlain(Header header, const Shard& shard, std::span<const NodeId> targets, Time now) {
    header.kind = Kind::kValue;
    header.flags = kPlain;
    header.round = shard.round;
    header.merge_count = node_.config().quorum;
    const auto value = shard.weights.value();
    const float* data = value->empty() ? nullptr : value->data();
    node_.SendValue(targets, Direction::kPull, header, data, value, now);
  }

  GlobalRounds rules_;
  std::set<NodeId> left_;  // parties whose workers have all left
  std::map<std::pair<Key, std::uint32_t>, Shard> shards_;
  std::optional<OptimizerSpec> optimizer_;
};

}  // namespace

std::unique_ptr<RoleLogic> MakeGlobalServer(Node& node) {
  return std::make_unique<GlobalServer>(node);
}

const Buffer* GlobalValueOf(const RoleLogic& logic, Key key, std::uint32_t shard) {
  return static_cast<const GlobalServer&>(logic).Value(key, shard);
}

}  // namespace geomx
