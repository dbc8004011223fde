// Instructions that carry the state of the global servers' optimizers, as texts of kCommand.
//
//     "states"                          worker -> local server -> global servers: send them
//     "state\nKEY SHARD PART PARTS\n"   the way back, followed by the bytes of one part (state.h)
//     "load\nKEY SHARD PART PARTS\n"    worker -> local server -> global servers, with bytes: continue
//                                      from them; servers ignore shards that they do not hold
//
// The key of the header is the worker that asks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/types.h"

namespace geomx {

inline constexpr std::size_t kLongestPart = 1u << 19;  // bytes; an instruction holds twice as many

inline constexpr char kAskVerb[] = "states", kStateVerb[] = "state", kLoadVerb[] = "load";

struct OptimizerPart {
  std::pair<Key, std::uint32_t> shard;
  std::uint32_t part = 0, parts = 1;
  std::string_view bytes;  // points into the text
};

inline std::string VerbOf(const std::string& text) { return text.substr(0, text.find('\n')); }

inline bool IsAboutStates(const std::string& text) {
  return VerbOf(text) == kAskVerb || VerbOf(text) == kLoadVerb;
}

// Why no server can carry out such an instruction; empty if one can.
std::string CheckStates(const std::string& text);

// The texts of a shard's state, in order.
std::vector<std::string> WriteParts(std::string_view verb, std::pair<Key, std::uint32_t> shard,
                                    std::string_view bytes);
// The part in a text, which must outlive it; nothing if it is malformed.
std::optional<OptimizerPart> ReadPart(const std::string& text);

}  // namespace geomx
