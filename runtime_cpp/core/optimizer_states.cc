#include "core/optimizer_states.h"

#include <algorithm>
#include <sstream>

#include "core/replica.h"
#include "core/server_role.h"

namespace geomx {

std::vector<std::string> WriteParts(std::string_view verb, std::pair<Key, std::uint32_t> shard,
                                    std::string_view bytes) {
  const std::size_t parts = std::max<std::size_t>(1, (bytes.size() + kLongestPart - 1) / kLongestPart);
  std::vector<std::string> texts;
  for (std::size_t part = 0; part < parts; ++part) {
    std::ostringstream head;
    head << verb << '\n' << shard.first << ' ' << shard.second << ' ' << part << ' ' << parts << '\n';
    texts.push_back(head.str().append(bytes.substr(part * kLongestPart, kLongestPart)));
  }
  return texts;
}

std::optional<OptimizerPart> ReadPart(const std::string& text) {
  const std::size_t verb = text.find('\n');
  const std::size_t head = verb == std::string::npos ? verb : text.find('\n', verb + 1);
  if (head == std::string::npos) return std::nullopt;
  std::istringstream words(text.substr(verb + 1, head - verb - 1));
  OptimizerPart part;
  if (!(words >> part.shard.first >> part.shard.second >> part.part >> part.parts)) return std::nullopt;
  if (part.part >= part.parts) return std::nullopt;
  part.bytes = std::string_view(text).substr(head + 1);
  return part;
}

std::string CheckStates(const std::string& text) {
  return VerbOf(text) == kLoadVerb && !ReadPart(text) ? "a malformed state" : "";
}

namespace {

constexpr std::uint64_t kMostArrays = 4096;  // of an optimizer with arrays for each of its sources

}  // namespace

void ServerRole::SendState(NodeId child, NodeId worker, std::pair<Key, std::uint32_t> id,
                           SummedShard& shard) {
  const auto send = [=, this, &shard](Time) {
    const std::vector<std::byte> saved = shard.weights.SaveOptimizer();
    const std::string_view bytes(reinterpret_cast<const char*>(saved.data()), saved.size());
    for (const std::string& text : WriteParts(kStateVerb, id, bytes)) {
      Message message = ControlMessage(Kind::kCommand, {text});
      message.header.key = worker;
      node_.Send(child, std::move(message));
    }
  };
  if (!Defer(shard, send)) send(0);
}

std::string ServerRole::Wrong(const std::string& text) {
  if (!IsAboutStates(text)) return Impossible(text);
  asks_states_ = asks_states_ || VerbOf(text) == kAskVerb;
  return CheckStates(text);
}

bool ServerRole::PassState(NodeId parent, const std::string& text, const Message& message) {
  if (VerbOf(text) != kStateVerb) {
    if (node_.config().rounds.update_at_party) return false;
    node_.Fail(parent, "an instruction from above");
    return true;
  }
  const NodeId worker = message.header.key;
  if (!node_.IsChild(worker)) return true;
  Message state = ControlMessage(Kind::kCommand, {});
  state.header.payload_bytes = message.header.payload_bytes;
  state.payload = message.payload;
  node_.Send(worker, std::move(state));
  return true;
}

// Parts of one shard arrive in order.
void ServerRole::LoadState(const OptimizerPart& part, const std::optional<OptimizerSpec>& spec,
                           SummedShard& shard) {
  std::string& loaded = loading_[part.shard];
  if (part.part == 0) loaded.clear();
  const std::uint64_t elements = shard.weights.has_value() ? shard.weights.value()->size() : 0;
  if (loaded.size() + part.bytes.size() > kMostArrays * sizeof(float) * elements + kLongestPart) {
    loading_.erase(part.shard);  // no optimizer keeps as much
    return node_.Emit({.kind = Event::Kind::kRefused, .text = "load", .reason = "a state is too long"});
  }
  loaded.append(part.bytes);
  if (part.part + 1 < part.parts) return;
  const auto load = [this, spec, saved = std::move(loaded), key = part.shard.first, &shard](Time) {
    try {
      if (!spec) throw StateError("the global servers have no optimizer");
      shard.weights.LoadOptimizer(std::as_bytes(std::span(saved)), *spec, key);
    } catch (const StateError& error) {
      node_.Emit({.kind = Event::Kind::kRefused, .text = "load", .reason = error.what()});
    }
  };
  loading_.erase(part.shard);
  if (!Defer(shard, load)) load(0);
}

}  // namespace geomx
