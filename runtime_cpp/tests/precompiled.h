// The headers that most C++ tests include. The test build parses them once (tests.cmake).
//
// Sources still include what they use; none may rely on this file. It is short, because writing a
// precompiled header takes longer than parsing it.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "core/natives.h"
#include "tests/cluster.h"
#include "tests/random_pairs.h"
