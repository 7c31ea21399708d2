// The text on which centers and layers of the KV cache are judged: prose, a list, code and an exchange. Its words are part
// of what decides stored bits; a change makes saved prefixes of older builds unreadable.
#pragma once

#include <string_view>

namespace turbo::engine {

inline constexpr std::string_view kObservedText = R"(The ferry left the island a little after six, while the lamps along the pier were still lit.
Marta counted the crates a second time and wrote the figure into her notebook: forty-one, two fewer than the day before.
She did not mind the cold. What she minded was the silence of the engine whenever the captain let it rest, because then
one could hear the water working at the hull.

"We will be early," said the captain. "The wind has turned."
"It always turns when nobody needs it," she answered, and closed the notebook.

Things to do before noon:
1. Deliver 12 crates of lemons to the market hall; ask for the receipt.
2. Call the harbour office about the broken crane (telephone 555-0148).
3. Buy rope, 30 metres, and a new lamp for the stern.

def average(values):
    total = 0.0
    for value in values:
        total += value
    return total / len(values) if values else None

print(average([3, 5, 8.5]))  # 5.5

Question: Which gas do plants take up from the air, and what do they give back?
Answer: They take up carbon dioxide and give back oxygen. At night, when there is no light, they breathe as animals do, and
take up a small part of the oxygen again. In 1779 a physician showed that only the green parts do so, and only in sunlight.

The committee met on 14 March and approved the budget of 2.6 million. Three members voted against it; one of them said that
the bridge had been promised to the town for twenty years, and that another year of waiting would cost more than the steel.
)";

}  // namespace turbo::engine
