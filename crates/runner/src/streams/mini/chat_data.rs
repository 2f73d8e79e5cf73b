//! Facts and word lists of the instruction stream.

/// A subject: plural or mass noun, what it is, three facts.
pub(super) type Subject = (&'static str, &'static str, [&'static str; 3]);

pub(super) const SUBJECTS: [Subject; 44] = [
    (
        "bees",
        "insects that live in colonies and feed on nectar",
        [
            "They tell each other where flowers are by dancing.",
            "A colony has a single queen.",
            "They carry pollen from plant to plant.",
        ],
    ),
    (
        "glaciers",
        "slow rivers of ice that form where more snow falls than melts",
        [
            "They carve deep valleys.",
            "They store much of the fresh water on land.",
            "They move a little every day.",
        ],
    ),
    (
        "compasses",
        "instruments whose needle points to magnetic north",
        [
            "Sailors have used them for many centuries.",
            "The needle is a small magnet.",
            "Iron nearby can mislead them.",
        ],
    ),
    (
        "volcanoes",
        "openings in the crust through which molten rock reaches the surface",
        [
            "The rock below the ground is called magma.",
            "Their ash makes soil fertile.",
            "Some of them lie under the sea.",
        ],
    ),
    (
        "libraries",
        "places where books and other media are kept and lent to people",
        [
            "Many also offer quiet rooms for study.",
            "Their books are ordered by subject or author.",
            "Anyone can usually read there for free.",
        ],
    ),
    (
        "whales",
        "large mammals that spend their whole life in the sea",
        [
            "They must come to the surface to breathe.",
            "Some of them sing for hours.",
            "Their young drink milk.",
        ],
    ),
    (
        "windmills",
        "buildings that use the force of wind to do work",
        [
            "They once ground grain into flour.",
            "Others pumped water from low land.",
            "Their modern relatives make electricity.",
        ],
    ),
    (
        "mushrooms",
        "the visible parts of fungi that spread spores",
        [
            "They do not need light to grow.",
            "Most of a fungus hides below the ground.",
            "Some kinds are poisonous.",
        ],
    ),
    (
        "bridges",
        "structures that carry a road or path over an obstacle",
        [
            "Arches press their load to the sides.",
            "Suspension bridges hang from cables.",
            "The oldest ones were fallen trees.",
        ],
    ),
    (
        "rainbows",
        "bands of colour that appear when sunlight passes through drops of water",
        [
            "The sun is always behind the viewer.",
            "Red is on the outer edge.",
            "Each drop acts like a small prism.",
        ],
    ),
    (
        "owls",
        "birds of prey that hunt mostly at night",
        [
            "Their feathers make almost no sound.",
            "They can turn their heads very far.",
            "They swallow small prey whole.",
        ],
    ),
    (
        "tides",
        "the regular rise and fall of the sea",
        [
            "The pull of the moon is their main cause.",
            "Most coasts have two of them a day.",
            "They are strongest at full and new moon.",
        ],
    ),
    (
        "deserts",
        "regions where very little rain falls",
        [
            "Some of them are cold.",
            "Plants there store water in thick leaves.",
            "Nights can be surprisingly chilly.",
        ],
    ),
    (
        "clocks",
        "devices that measure and show the time",
        [
            "Early ones used water or shadows.",
            "A pendulum swings with a steady beat.",
            "Quartz crystals made them cheap and exact.",
        ],
    ),
    (
        "spiders",
        "animals with eight legs that often catch prey in webs",
        [
            "Their silk is very strong for its weight.",
            "Not every kind builds a web.",
            "They help to keep insects in check.",
        ],
    ),
    (
        "lighthouses",
        "towers with a strong lamp that warns ships of danger",
        [
            "Each has its own pattern of flashes.",
            "Keepers used to live in them.",
            "Special lenses bundle their light.",
        ],
    ),
    (
        "trains",
        "vehicles that run on rails and carry people or goods",
        [
            "Steel wheels on steel rails waste little energy.",
            "The first ones were driven by steam.",
            "Signals keep them at a safe distance.",
        ],
    ),
    (
        "vaccines",
        "medicines that prepare the body to fight a disease",
        [
            "They teach the immune system what to look for.",
            "Some need to be repeated after years.",
            "They protect people who cannot be treated as well.",
        ],
    ),
    (
        "batteries",
        "devices that store energy in chemical form and release it as electricity",
        [
            "They have a positive and a negative pole.",
            "Some of them can be charged many times.",
            "Cold weather makes them weaker.",
        ],
    ),
    (
        "penguins",
        "seabirds that cannot fly but swim very well",
        [
            "Their wings work like flippers.",
            "Many kinds live in the far south.",
            "Parents take turns keeping the egg warm.",
        ],
    ),
    (
        "telescopes",
        "instruments that make distant objects appear larger and brighter",
        [
            "They use lenses or curved mirrors.",
            "Some of them orbit the planet.",
            "Others collect radio waves instead of light.",
        ],
    ),
    (
        "forests",
        "large areas covered with trees",
        [
            "They give shelter to countless animals.",
            "Their roots hold the soil in place.",
            "They take carbon dioxide from the air.",
        ],
    ),
    (
        "magnets",
        "objects that attract iron and a few other metals",
        [
            "Equal poles push each other away.",
            "Heat can destroy their force.",
            "The planet itself acts like a huge one.",
        ],
    ),
    (
        "castles",
        "fortified homes built by rulers and nobles",
        [
            "Thick walls protected the people inside.",
            "Many were surrounded by a moat.",
            "Spiral stairs were easy to defend.",
        ],
    ),
    (
        "corals",
        "tiny sea animals that build reefs from limestone",
        [
            "They live together with algae.",
            "Warm water can make them turn white.",
            "Reefs are home to many fish.",
        ],
    ),
    (
        "bicycles",
        "vehicles with two wheels that are driven by pedals",
        [
            "Gears make climbing easier.",
            "They need no fuel.",
            "The spinning wheels help to keep them upright.",
        ],
    ),
    (
        "earthquakes",
        "sudden movements of the ground caused by breaking rock",
        [
            "Most of them are too weak to feel.",
            "Their strength is recorded by seismographs.",
            "They can set off large waves at sea.",
        ],
    ),
    (
        "butterflies",
        "insects with broad, scaly and often colourful wings",
        [
            "They begin life as caterpillars.",
            "They taste with their feet.",
            "Some kinds travel very long distances.",
        ],
    ),
    (
        "maps",
        "drawings that show a region from above at a reduced size",
        [
            "A scale tells how far things are apart.",
            "Symbols stand for roads, rivers and towns.",
            "No flat one can show a round planet without distortion.",
        ],
    ),
    (
        "camels",
        "animals that can live for days in the desert without drinking",
        [
            "Their humps store fat.",
            "They can close their nostrils against sand.",
            "Broad feet keep them from sinking.",
        ],
    ),
    (
        "violins",
        "string instruments that are played with a bow",
        [
            "They have four strings.",
            "Their body is made of thin wood.",
            "They are the smallest members of their family.",
        ],
    ),
    (
        "clouds",
        "masses of tiny drops or ice crystals that float in the air",
        [
            "They form when moist air cools.",
            "Thin high ones consist of ice.",
            "Dark ones often bring rain.",
        ],
    ),
    (
        "seeds",
        "the parts of a plant from which new plants grow",
        [
            "They contain food for the young plant.",
            "Wind and animals carry them away.",
            "Some of them can wait for years.",
        ],
    ),
    (
        "elephants",
        "the largest animals living on land",
        [
            "They use their trunk like a hand.",
            "Herds are led by an old female.",
            "Their ears help them to stay cool.",
        ],
    ),
    (
        "comets",
        "lumps of ice and dust that travel around the sun",
        [
            "Their tails point away from the sun.",
            "Some come back after many years.",
            "They are left over from early times.",
        ],
    ),
    (
        "wetlands",
        "areas of land that are covered by shallow water for much of the year",
        [
            "They filter dirt from the water.",
            "They soften floods.",
            "Many birds rest there on their journeys.",
        ],
    ),
    (
        "bats",
        "the only mammals that can truly fly",
        [
            "They find their way by echoes.",
            "Many eat insects, others eat fruit.",
            "They sleep hanging upside down.",
        ],
    ),
    (
        "dams",
        "walls that hold back the water of a river",
        [
            "They can produce electricity.",
            "They keep water for dry months.",
            "Fish need ladders to get past them.",
        ],
    ),
    (
        "museums",
        "buildings in which objects of interest are kept and shown",
        [
            "Only a part of their objects is on display.",
            "Experts there study and repair old things.",
            "Many of them offer guided tours.",
        ],
    ),
    (
        "salt crystals",
        "small cubes formed by a mineral that is common in the sea",
        [
            "They dissolve easily in water.",
            "They keep food from spoiling.",
            "They were once used as payment.",
        ],
    ),
    (
        "hedgehogs",
        "small mammals whose backs are covered with spines",
        [
            "They roll up when they are frightened.",
            "They sleep through the winter.",
            "They eat beetles, worms and snails.",
        ],
    ),
    (
        "canals",
        "waterways dug by people for ships or for watering fields",
        [
            "Locks lift boats up and down.",
            "Horses used to pull the boats.",
            "They connect rivers with each other.",
        ],
    ),
    (
        "fossils",
        "remains or traces of living things preserved in rock",
        [
            "Footprints can become fossils too.",
            "They show how life has changed.",
            "Most of them are found in layers of sediment.",
        ],
    ),
    (
        "kites",
        "light frames covered with cloth or paper that fly in the wind",
        [
            "A tail makes them steadier.",
            "They were first flown in Asia long ago.",
            "They have been used to study the weather.",
        ],
    ),
];

/// An activity and five pieces of advice.
pub(super) const ADVICE: [(&str, [&str; 5]); 30] = [
    (
        "sleeping better",
        [
            "Go to bed at the same time every day.",
            "Keep the room dark and cool.",
            "Avoid screens for an hour before bedtime.",
            "Drink no coffee in the evening.",
            "Write down worries before lying down.",
        ],
    ),
    (
        "learning a new language",
        [
            "Practise a little every day.",
            "Listen to songs and stories.",
            "Speak with native speakers.",
            "Keep a list of new words.",
            "Do not be afraid of mistakes.",
        ],
    ),
    (
        "saving water at home",
        [
            "Take short showers.",
            "Turn off the tap while brushing your teeth.",
            "Repair dripping taps.",
            "Collect rain for the garden.",
            "Fill the washing machine completely.",
        ],
    ),
    (
        "growing tomatoes",
        [
            "Choose a sunny place.",
            "Water the roots, not the leaves.",
            "Tie the stems to a stick.",
            "Remove side shoots.",
            "Pick the fruit when it is fully red.",
        ],
    ),
    (
        "preparing for a job interview",
        [
            "Read about the company.",
            "Practise common questions.",
            "Choose neat clothes.",
            "Arrive ten minutes early.",
            "Prepare a question of your own.",
        ],
    ),
    (
        "keeping a kitchen tidy",
        [
            "Wash up right after eating.",
            "Give every tool a fixed place.",
            "Wipe the counter each evening.",
            "Throw away old food once a week.",
            "Store what you rarely use elsewhere.",
        ],
    ),
    (
        "giving a speech",
        [
            "Know your first sentence by heart.",
            "Look at the audience.",
            "Speak slowly and pause.",
            "Use examples.",
            "Finish before people expect it.",
        ],
    ),
    (
        "travelling with small children",
        [
            "Plan short stages.",
            "Pack snacks and water.",
            "Bring a favourite toy.",
            "Allow time for breaks.",
            "Tell them what comes next.",
        ],
    ),
    (
        "spending less money",
        [
            "Write down what you spend.",
            "Cook at home.",
            "Wait a day before large purchases.",
            "Cancel what you do not use.",
            "Set aside savings first.",
        ],
    ),
    (
        "caring for a cat",
        [
            "Offer fresh water every day.",
            "Clean the litter box often.",
            "Play with it in the evening.",
            "Visit the vet once a year.",
            "Give it a quiet place to hide.",
        ],
    ),
    (
        "writing a good summary",
        [
            "Read the whole text first.",
            "Note the main points.",
            "Use your own words.",
            "Leave out details.",
            "Check it against the original.",
        ],
    ),
    (
        "taking better photographs",
        [
            "Mind where the light comes from.",
            "Move closer to the subject.",
            "Keep the horizon level.",
            "Look for a simple background.",
            "Take several pictures.",
        ],
    ),
    (
        "riding a bicycle in traffic",
        [
            "Wear a helmet.",
            "Signal before you turn.",
            "Keep a distance from parked cars.",
            "Use lights in the dark.",
            "Watch drivers' eyes at crossings.",
        ],
    ),
    (
        "staying focused while studying",
        [
            "Put the phone in another room.",
            "Work in short blocks.",
            "Set a clear goal.",
            "Take a walk in the breaks.",
            "Begin with the hardest part.",
        ],
    ),
    (
        "packing a suitcase",
        [
            "Make a list.",
            "Roll soft clothes.",
            "Put heavy things at the bottom.",
            "Fill shoes with socks.",
            "Leave some space for the way back.",
        ],
    ),
    (
        "making friends in a new town",
        [
            "Join a club.",
            "Greet your neighbours.",
            "Say yes to invitations.",
            "Visit the same café often.",
            "Offer help to others.",
        ],
    ),
    (
        "running your first race",
        [
            "Start training months ahead.",
            "Increase the distance slowly.",
            "Rest for a day each week.",
            "Wear shoes you know.",
            "Begin slower than you feel like.",
        ],
    ),
    (
        "protecting your password",
        [
            "Make it long.",
            "Use a different one for every service.",
            "Do not share it.",
            "Store it in a password manager.",
            "Add a second step for signing in.",
        ],
    ),
    (
        "hosting a dinner party",
        [
            "Ask about allergies.",
            "Choose dishes you have cooked before.",
            "Prepare dessert the day before.",
            "Set the table early.",
            "Introduce the guests to each other.",
        ],
    ),
    (
        "reading more books",
        [
            "Carry a book with you.",
            "Read ten pages before bed.",
            "Stop reading what bores you.",
            "Join a reading group.",
            "Keep a list of titles to try.",
        ],
    ),
    (
        "reducing waste",
        [
            "Bring your own bag.",
            "Repair broken things.",
            "Buy food without packaging.",
            "Turn leftovers into soup.",
            "Sort paper, glass and metal.",
        ],
    ),
    (
        "training a puppy",
        [
            "Reward it at once.",
            "Keep lessons short.",
            "Use the same words each time.",
            "Stay calm.",
            "Let it meet other dogs.",
        ],
    ),
    (
        "painting a room",
        [
            "Cover the floor.",
            "Tape the edges.",
            "Begin with the ceiling.",
            "Use thin coats.",
            "Open a window while it dries.",
        ],
    ),
    (
        "hiking in the mountains",
        [
            "Check the weather.",
            "Tell someone your route.",
            "Wear sturdy boots.",
            "Carry enough water.",
            "Turn back in time.",
        ],
    ),
    (
        "baking bread",
        [
            "Weigh the ingredients.",
            "Knead until the dough is smooth.",
            "Let it rise in a warm place.",
            "Heat the oven well.",
            "Let the loaf cool before slicing.",
        ],
    ),
    (
        "working from home",
        [
            "Keep regular hours.",
            "Set up a separate desk.",
            "Dress as if you went out.",
            "Plan calls with colleagues.",
            "End the day with a walk.",
        ],
    ),
    (
        "learning to play the piano",
        [
            "Sit upright.",
            "Practise each hand alone.",
            "Play slowly at first.",
            "Count aloud.",
            "Repeat hard bars, not the whole piece.",
        ],
    ),
    (
        "dealing with stress",
        [
            "Breathe slowly.",
            "Talk to a friend.",
            "Move your body.",
            "Divide big tasks into small ones.",
            "Learn to say no.",
        ],
    ),
    (
        "keeping houseplants alive",
        [
            "Feel the soil before watering.",
            "Turn the pot from time to time.",
            "Dust the leaves.",
            "Use a pot with a hole.",
            "Find out how much light the plant likes.",
        ],
    ),
    (
        "winning at chess",
        [
            "Bring out your pieces early.",
            "Castle soon.",
            "Control the centre.",
            "Look at every check.",
            "Study your lost games.",
        ],
    ),
];

/// Two things, what they share, what sets the first and the second apart.
pub(super) const PAIRS: [(&str, &str, &str, &str, &str); 24] = [
    (
        "cats",
        "dogs",
        "are popular pets",
        "like to be on their own",
        "enjoy company and walks",
    ),
    (
        "tea",
        "coffee",
        "are hot drinks that contain caffeine",
        "is made from leaves",
        "is made from roasted beans",
    ),
    (
        "lakes",
        "rivers",
        "hold fresh water",
        "stay in one place",
        "flow towards the sea",
    ),
    (
        "trains",
        "buses",
        "carry many passengers",
        "run on rails",
        "use ordinary roads",
    ),
    (
        "novels",
        "poems",
        "are works of literature",
        "tell a long story",
        "condense feelings into few words",
    ),
    (
        "the moon",
        "the sun",
        "can be seen in the sky",
        "only reflects light",
        "shines by itself",
    ),
    (
        "butter",
        "olive oil",
        "are fats used in cooking",
        "is made from milk",
        "is pressed from fruit",
    ),
    (
        "violins",
        "guitars",
        "are string instruments",
        "are played with a bow",
        "are plucked",
    ),
    (
        "cities",
        "villages",
        "are places where people live",
        "offer many jobs and shops",
        "are quiet and close to nature",
    ),
    (
        "frogs",
        "toads",
        "are amphibians",
        "have smooth, moist skin",
        "have dry, bumpy skin",
    ),
    (
        "oil paint",
        "watercolour",
        "are used by artists",
        "dries slowly and covers well",
        "is thin and lets the paper shine through",
    ),
    (
        "winter",
        "summer",
        "are seasons",
        "brings short, cold days",
        "brings long, warm days",
    ),
    (
        "football",
        "tennis",
        "are ball sports",
        "is played by two large teams",
        "is played by two or four people",
    ),
    (
        "crocodiles",
        "lizards",
        "are reptiles",
        "live mostly in water",
        "live mostly on land",
    ),
    (
        "paper books",
        "e-books",
        "can be read anywhere",
        "need no battery",
        "weigh almost nothing however many there are",
    ),
    (
        "gold",
        "iron",
        "are metals",
        "does not rust and is rare",
        "is strong and common",
    ),
    (
        "email",
        "a letter",
        "carry written messages",
        "arrives within seconds",
        "can be touched and kept in a drawer",
    ),
    (
        "apples",
        "oranges",
        "are healthy fruits",
        "can be eaten with the skin",
        "have to be peeled",
    ),
    (
        "the theatre",
        "the cinema",
        "show stories to an audience",
        "presents living actors",
        "presents recorded pictures",
    ),
    (
        "moths",
        "butterflies",
        "are insects with scaly wings",
        "fly mostly at night",
        "fly mostly by day",
    ),
    (
        "running",
        "swimming",
        "train the heart",
        "needs only a pair of shoes",
        "is gentle on the joints",
    ),
    (
        "wool",
        "cotton",
        "are natural fibres",
        "comes from sheep and keeps warm",
        "comes from a plant and is cool to wear",
    ),
    (
        "a hill",
        "a mountain",
        "rise above the land around them",
        "is low and rounded",
        "is high and often steep",
    ),
    (
        "honey",
        "sugar",
        "are sweet",
        "is made by bees",
        "is won from beets or cane",
    ),
];

/// Kinds of things with members; odd-one-out and sorting tasks.
pub(super) const KINDS: [(&str, [&str; 9]); 14] = [
    (
        "fruit",
        [
            "apple", "pear", "banana", "plum", "peach", "cherry", "mango", "apricot", "grape",
        ],
    ),
    (
        "vegetables",
        [
            "carrot", "leek", "spinach", "cabbage", "radish", "turnip", "broccoli", "celery",
            "beetroot",
        ],
    ),
    (
        "animals",
        [
            "horse", "rabbit", "fox", "badger", "otter", "goat", "mouse", "donkey", "squirrel",
        ],
    ),
    (
        "birds",
        [
            "robin", "swan", "eagle", "sparrow", "heron", "magpie", "pigeon", "crow", "stork",
        ],
    ),
    (
        "tools",
        [
            "hammer",
            "saw",
            "chisel",
            "screwdriver",
            "pliers",
            "drill",
            "wrench",
            "file",
            "spade",
        ],
    ),
    (
        "musical instruments",
        [
            "flute", "cello", "trumpet", "harp", "drum", "oboe", "guitar", "organ", "clarinet",
        ],
    ),
    (
        "colours",
        [
            "red",
            "green",
            "blue",
            "yellow",
            "purple",
            "brown",
            "grey",
            "pink",
            "turquoise",
        ],
    ),
    (
        "vehicles",
        [
            "bus", "tram", "lorry", "bicycle", "van", "tractor", "scooter", "ferry", "taxi",
        ],
    ),
    (
        "clothes",
        [
            "shirt", "coat", "scarf", "skirt", "glove", "jumper", "sock", "jacket", "cap",
        ],
    ),
    (
        "furniture",
        [
            "table", "chair", "wardrobe", "sofa", "desk", "bed", "bookcase", "stool", "bench",
        ],
    ),
    (
        "jobs",
        [
            "baker",
            "nurse",
            "plumber",
            "teacher",
            "farmer",
            "tailor",
            "dentist",
            "pilot",
            "librarian",
        ],
    ),
    (
        "trees",
        [
            "oak", "birch", "willow", "pine", "maple", "elm", "beech", "ash", "cedar",
        ],
    ),
    (
        "sports",
        [
            "tennis", "rowing", "judo", "hockey", "fencing", "golf", "cycling", "boxing", "sailing",
        ],
    ),
    (
        "drinks",
        [
            "water", "juice", "milk", "tea", "coffee", "lemonade", "cocoa", "cider", "soda",
        ],
    ),
];

/// A word, two synonyms, an opposite.
pub(super) const SYNONYMS: [(&str, &str, &str, &str); 40] = [
    ("happy", "glad", "cheerful", "sad"),
    ("big", "large", "huge", "small"),
    ("fast", "quick", "rapid", "slow"),
    ("smart", "clever", "bright", "foolish"),
    ("cold", "chilly", "icy", "hot"),
    ("begin", "start", "commence", "end"),
    ("brave", "bold", "fearless", "cowardly"),
    ("quiet", "silent", "hushed", "loud"),
    ("rich", "wealthy", "affluent", "poor"),
    ("strange", "odd", "unusual", "ordinary"),
    ("hard", "difficult", "tough", "easy"),
    ("tidy", "neat", "orderly", "messy"),
    ("angry", "furious", "cross", "calm"),
    ("build", "construct", "erect", "destroy"),
    ("kind", "gentle", "caring", "cruel"),
    ("tired", "weary", "sleepy", "rested"),
    ("honest", "sincere", "truthful", "deceitful"),
    ("old", "aged", "ancient", "young"),
    ("help", "assist", "support", "hinder"),
    ("empty", "vacant", "hollow", "full"),
    ("shiny", "glossy", "gleaming", "dull"),
    ("generous", "giving", "unselfish", "stingy"),
    ("careful", "cautious", "wary", "reckless"),
    ("find", "discover", "locate", "lose"),
    ("strong", "powerful", "sturdy", "weak"),
    ("wet", "damp", "soaked", "dry"),
    ("polite", "courteous", "civil", "rude"),
    ("buy", "purchase", "acquire", "sell"),
    ("funny", "amusing", "comical", "serious"),
    ("wide", "broad", "spacious", "narrow"),
    ("join", "connect", "link", "separate"),
    ("dangerous", "risky", "hazardous", "safe"),
    ("famous", "renowned", "celebrated", "unknown"),
    ("sharp", "keen", "pointed", "blunt"),
    ("rare", "scarce", "uncommon", "common"),
    ("modern", "current", "recent", "outdated"),
    ("simple", "plain", "basic", "complex"),
    ("admire", "respect", "esteem", "despise"),
    ("shout", "yell", "cry", "whisper"),
    ("rough", "coarse", "uneven", "smooth"),
];

/// A verb phrase in its base, third-person, past and continuous forms.
pub(super) const ACTIONS: [(&str, &str, &str, &str); 32] = [
    (
        "paint the fence",
        "paints the fence",
        "painted the fence",
        "painting the fence",
    ),
    (
        "write a letter",
        "writes a letter",
        "wrote a letter",
        "writing a letter",
    ),
    (
        "bake a cake",
        "bakes a cake",
        "baked a cake",
        "baking a cake",
    ),
    (
        "catch the early train",
        "catches the early train",
        "caught the early train",
        "catching the early train",
    ),
    (
        "sing in the choir",
        "sings in the choir",
        "sang in the choir",
        "singing in the choir",
    ),
    (
        "repair the old radio",
        "repairs the old radio",
        "repaired the old radio",
        "repairing the old radio",
    ),
    (
        "swim across the lake",
        "swims across the lake",
        "swam across the lake",
        "swimming across the lake",
    ),
    (
        "teach the children chess",
        "teaches the children chess",
        "taught the children chess",
        "teaching the children chess",
    ),
    (
        "drink a glass of milk",
        "drinks a glass of milk",
        "drank a glass of milk",
        "drinking a glass of milk",
    ),
    (
        "carry the boxes upstairs",
        "carries the boxes upstairs",
        "carried the boxes upstairs",
        "carrying the boxes upstairs",
    ),
    (
        "grow herbs on the balcony",
        "grows herbs on the balcony",
        "grew herbs on the balcony",
        "growing herbs on the balcony",
    ),
    (
        "draw a map of the island",
        "draws a map of the island",
        "drew a map of the island",
        "drawing a map of the island",
    ),
    (
        "feed the ducks",
        "feeds the ducks",
        "fed the ducks",
        "feeding the ducks",
    ),
    (
        "ride to the harbour",
        "rides to the harbour",
        "rode to the harbour",
        "riding to the harbour",
    ),
    (
        "tell a funny story",
        "tells a funny story",
        "told a funny story",
        "telling a funny story",
    ),
    (
        "wash the windows",
        "washes the windows",
        "washed the windows",
        "washing the windows",
    ),
    (
        "choose a new bicycle",
        "chooses a new bicycle",
        "chose a new bicycle",
        "choosing a new bicycle",
    ),
    (
        "build a wooden boat",
        "builds a wooden boat",
        "built a wooden boat",
        "building a wooden boat",
    ),
    (
        "read the newspaper",
        "reads the newspaper",
        "read the newspaper",
        "reading the newspaper",
    ),
    (
        "plant an apple tree",
        "plants an apple tree",
        "planted an apple tree",
        "planting an apple tree",
    ),
    (
        "speak to the mayor",
        "speaks to the mayor",
        "spoke to the mayor",
        "speaking to the mayor",
    ),
    (
        "forget the keys",
        "forgets the keys",
        "forgot the keys",
        "forgetting the keys",
    ),
    (
        "wear a green hat",
        "wears a green hat",
        "wore a green hat",
        "wearing a green hat",
    ),
    (
        "count the coins",
        "counts the coins",
        "counted the coins",
        "counting the coins",
    ),
    (
        "throw the ball",
        "throws the ball",
        "threw the ball",
        "throwing the ball",
    ),
    (
        "cook a pot of soup",
        "cooks a pot of soup",
        "cooked a pot of soup",
        "cooking a pot of soup",
    ),
    (
        "visit the museum",
        "visits the museum",
        "visited the museum",
        "visiting the museum",
    ),
    (
        "lose the umbrella",
        "loses the umbrella",
        "lost the umbrella",
        "losing the umbrella",
    ),
    (
        "play the trumpet",
        "plays the trumpet",
        "played the trumpet",
        "playing the trumpet",
    ),
    (
        "sell flowers at the market",
        "sells flowers at the market",
        "sold flowers at the market",
        "selling flowers at the market",
    ),
    (
        "study the stars",
        "studies the stars",
        "studied the stars",
        "studying the stars",
    ),
    (
        "bring fresh bread",
        "brings fresh bread",
        "brought fresh bread",
        "bringing fresh bread",
    ),
];
