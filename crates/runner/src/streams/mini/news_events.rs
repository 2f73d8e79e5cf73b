//! The events the news generator reports on. Names and places are invented.

/// One kind of event: variants of the first sentence, slots of further sentences with variants, variants of the
/// summary, and lists from which a value is drawn for a placeholder of that name.
pub(super) struct Event {
    pub lead: &'static [&'static str],
    pub body: &'static [&'static [&'static str]],
    pub summary: &'static [&'static str],
    pub choices: &'static [(&'static str, &'static [&'static str])],
}

/// Last sentences that suit any event.
pub(super) const CLOSINGS: &[&str] = &[
    "A further announcement is expected on {day2}.",
    "Residents of {town2} are following the matter closely.",
    "More details will be given at a public meeting in {month}.",
    "Local shopkeepers said they had never seen so many people in the streets.",
    "The story was first reported by a school newspaper in {town2}.",
    "Councillor {name3} said {they3} had received dozens of messages about it.",
    "It is the second time this year that {town} has made the headlines.",
    "Photographs will be on show in the town hall until the end of {month}.",
    "\"People here will talk about this for a long time,\" said {name3}, who lives nearby.",
];

pub(super) const EVENTS: &[Event] = &[
    Event {
        lead: &[
            "{town} beat {town2} {score} in the {cup} on {day} after a late goal by {name}.",
            "A late strike from {name} gave {town} a {score} win over {town2} in the {cup}.",
            "{name} was the hero as {town} won {score} against {town2} on {day}.",
        ],
        body: &[
            &[
                "The visitors had started the better side and hit the post after {k} minutes.",
                "Both teams were nervous at the start and created little.",
            ],
            &[
                "{town2} took the lead through {name2}, who headed in a corner.",
                "It was {name2} who opened the scoring for {town2} from close range.",
            ],
            &[
                "The home side equalised shortly before the break.",
                "{town} drew level from a free kick that went in off the wall.",
            ],
            &[
                "After the interval rain made the pitch heavy and the passes short.",
                "The second half was played in driving wind.",
            ],
            &[
                "Goalkeeper {name3} kept {town} in the match with {k} fine saves.",
                "Only {name3} in goal prevented a second goal for the guests.",
            ],
            &[
                "With {k} minutes to go {last} ran clear and shot low into the corner.",
                "{last}, who had come on as a substitute, found space near the end and made no mistake.",
            ],
            &[
                "\"We never stopped believing,\" {last} told reporters.",
                "\"It was the best moment of my career,\" {last} said afterwards.",
            ],
            &[
                "The crowd of {m} stayed to applaud both teams.",
                "{m} spectators saw the game.",
            ],
        ],
        summary: &[
            "A late goal by {name} gave {town} a {score} victory over {town2} in the {cup}.",
            "{town} have beaten {town2} {score} in the {cup} thanks to {name}'s late goal.",
        ],
        choices: &[
            ("score", &["2-1", "3-2", "4-3", "3-1"]),
            (
                "cup",
                &[
                    "County Cup",
                    "Northern League",
                    "Harbour Trophy",
                    "second round of the Shield",
                    "regional final",
                ],
            ),
        ],
    },
    Event {
        lead: &[
            "Councillors in {town} have approved plans for {building} at the old {site}.",
            "Plans to build {building} on the site of the former {site} in {town} have been passed.",
            "{town} is to get {building} after councillors voted for the scheme on {day}.",
        ],
        body: &[
            &[
                "The vote was {n} to {k} after a debate of more than three hours.",
                "Only {k} members of the council voted against.",
            ],
            &[
                "The project will cost about {money} and should be finished within {k} years.",
                "Work is due to begin in {month} at a cost of {money}.",
            ],
            &[
                "The {site} has stood empty since a fire.",
                "The {site} was closed long ago and has been fenced off ever since.",
            ],
            &[
                "More than {m} people had signed a petition in favour.",
                "A petition against the plans was signed by {m} people.",
            ],
            &[
                "Opponents fear that traffic in the narrow streets will increase.",
                "Neighbours had complained about noise and the loss of old trees.",
            ],
            &[
                "Council leader {name} called it a turning point for the town.",
                "\"This brings life back to a forgotten corner,\" said council leader {name}.",
            ],
            &[
                "Architect {name2} said the brick front of {year} would be kept.",
                "According to architect {name2}, the roof will carry solar panels.",
            ],
            &[
                "About {n} jobs are expected to be created.",
                "The developers promise {n} new jobs and a small park.",
            ],
        ],
        summary: &[
            "{town} is to get {building} at its former {site} after councillors approved the plans.",
            "Councillors have backed plans for {building} on the site of {town}'s old {site}.",
        ],
        choices: &[
            (
                "building",
                &[
                    "a swimming pool",
                    "a music school",
                    "a covered market",
                    "a sports hall",
                ],
            ),
            (
                "site",
                &[
                    "brewery",
                    "railway yard",
                    "cinema",
                    "tannery",
                    "bus depot",
                    "rope factory",
                ],
            ),
        ],
    },
    Event {
        lead: &[
            "A fire has destroyed {place} in {town}.",
            "Firefighters spent the night at {place} in {town} after a fire broke out on {day} evening.",
            "{n} firefighters have been tackling a blaze at {place} in {town}.",
        ],
        body: &[
            &[
                "The alarm was raised by a passer-by shortly after {k} o'clock.",
                "A neighbour saw smoke and called the fire service.",
            ],
            &[
                "Flames could be seen from as far away as {town2}.",
                "Thick smoke drifted towards {town2} and people were told to keep their windows shut.",
            ],
            &[
                "{k} crews were sent to the scene and pumped water from the river.",
                "Crews from {k} stations worked in turns until dawn.",
            ],
            &[
                "Nobody was hurt, but {n} people had to leave their homes.",
                "{n} residents spent the night in a school hall.",
            ],
            &[
                "Station manager {name} said the roof had fallen in within minutes.",
                "\"It spread faster than anything I have seen,\" said station manager {name}.",
            ],
            &[
                "The owner, {name2}, put the damage at {money}.",
                "Damage is thought to amount to {money}.",
            ],
            &[
                "The building dates from {year} and is protected.",
                "Built in {year}, the building was being restored.",
            ],
            &[
                "The cause is not yet known.",
                "Investigators believe that an electrical fault was to blame.",
            ],
        ],
        summary: &[
            "A large fire has destroyed {place} in {town}, but nobody was hurt.",
            "Firefighters have spent hours tackling a blaze at {place} in {town}.",
        ],
        choices: &[(
            "place",
            &[
                "a furniture warehouse",
                "a timber yard",
                "the old theatre",
                "a paint factory",
                "a boathouse",
                "a historic barn",
                "a carpet shop",
            ],
        )],
    },
    Event {
        lead: &[
            "A rare {find} has been found by {finder} near {town}.",
            "In a field outside {town} {finder} has discovered a {find}.",
            "Experts are excited about a {find} that came to light near {town}.",
        ],
        body: &[
            &[
                "{name}, {age}, said {they} first took it for a piece of rubbish.",
                "\"I nearly threw it away,\" said {name}, {age}.",
            ],
            &[
                "It lay only {n} centimetres below the surface.",
                "Heavy rain had washed away the soil above it.",
            ],
            &[
                "Archaeologist {name2} believes it to be more than {m} years old.",
                "According to archaeologist {name2}, it was probably buried {m} years ago.",
            ],
            &[
                "Only {k} similar pieces are known in the country.",
                "Nothing like it has been found in the region before.",
            ],
            &[
                "The object is being cleaned and studied at the museum in {town2}.",
                "Specialists in {town2} are now examining it under a microscope.",
            ],
            &[
                "Its value is estimated at {money}.",
                "A dealer said it might fetch {money} at auction.",
            ],
            &[
                "A dig on the site will start in {month}.",
                "The farmer has agreed to a dig that begins in {month}.",
            ],
            &[
                "{last} hopes that it will go on display close to home.",
                "{last} will share any reward with the owner of the land.",
            ],
        ],
        summary: &[
            "A rare {find} that may be {m} years old has been found near {town}.",
            "Near {town} {finder} has found a {find} in a field.",
        ],
        choices: &[
            (
                "find",
                &[
                    "silver brooch",
                    "bronze helmet",
                    "gold coin",
                    "carved stone head",
                    "decorated sword",
                    "burial urn",
                ],
            ),
            (
                "finder",
                &[
                    "a hobby treasure hunter",
                    "a dog walker",
                    "a retired teacher",
                    "a farm worker",
                ],
            ),
        ],
    },
    Event {
        lead: &[
            "{company} is to cut {m} jobs at its factory in {town}.",
            "Around {m} jobs will go at {company}'s plant in {town}, the firm announced on {day}.",
            "Workers at {company} in {town} have been told that {m} posts will be lost.",
        ],
        body: &[
            &[
                "The company blamed rising costs and weak orders from abroad.",
                "Sales had fallen by {n} per cent within a year, the firm said.",
            ],
            &[
                "The plant makes {product} and has been open since {year}.",
                "The making of {product} began there in {year}.",
            ],
            &[
                "Managing director {name} called the decision painful but necessary.",
                "\"We have tried everything else,\" said managing director {name}.",
            ],
            &[
                "Union official {name2} said the news was a bitter blow.",
                "\"Whole families depend on this place,\" said {name2} of the union.",
            ],
            &[
                "Talks with the staff will last {k} weeks.",
                "Staff will be consulted over the coming {k} weeks.",
            ],
            &[
                "Part of the production is to move to {town2}.",
                "The firm's site in {town2} is not affected.",
            ],
            &[
                "The council promised {money} for training courses.",
                "A fund of {money} is to help those who lose their jobs.",
            ],
            &[
                "Shares in the company rose slightly after the announcement.",
                "It is the third round of cuts in {k} years.",
            ],
        ],
        summary: &[
            "{company} is to cut {m} jobs at its {town} factory because of rising costs and weak sales.",
            "About {m} workers at {company} in {town} are to lose their jobs.",
        ],
        choices: &[
            (
                "company",
                &[
                    "Bellfort Ceramics",
                    "Norvane Motors",
                    "Tolland Glass",
                    "Hexam Foods",
                    "Sorrel and Pike",
                    "Ostler Engines",
                    "Greyline Textiles",
                ],
            ),
            (
                "product",
                &[
                    "washing machines",
                    "bathroom tiles",
                    "engine parts",
                    "biscuits",
                    "carpets",
                    "window frames",
                ],
            ),
        ],
    },
    Event {
        lead: &[
            "Heavy rain has caused flooding in {town} and the villages around it.",
            "Roads and railway lines near {town} are under water after a day of heavy rain.",
            "Dozens of homes in {town} have been flooded after the river burst its banks on {day}.",
        ],
        body: &[
            &[
                "More than {n} millimetres of rain fell within {k} hours.",
                "Within {k} hours it rained as much as in a usual month.",
            ],
            &[
                "About {m} households were without power in the night.",
                "Power failed in {m} homes.",
            ],
            &[
                "Rescue teams brought {n} people to safety in boats.",
                "{n} people, some of them in wheelchairs, were taken out by boat.",
            ],
            &[
                "The road between {town} and {town2} remains closed.",
                "Trains to {town2} have been cancelled until further notice.",
            ],
            &[
                "{name}, {age}, who runs a bakery, said the water came within minutes.",
                "\"We saved the dog and the photographs, that is all,\" said {name}, {age}.",
            ],
            &[
                "Schools will stay shut until {day2}.",
                "Two schools are serving as emergency shelters.",
            ],
            &[
                "Forecaster {name2} expects drier weather from {day2} on.",
                "According to forecaster {name2}, another band of rain is on its way.",
            ],
            &[
                "The council has set aside {money} for repairs.",
                "A flood wall worth {money} had been planned but never built.",
            ],
        ],
        summary: &[
            "Heavy rain has flooded homes and cut off roads in and around {town}.",
            "Homes in {town} have been flooded and people rescued by boat after heavy rain.",
        ],
        choices: &[],
    },
    Event {
        lead: &[
            "{name}, {age}, has {feat} to raise money for {cause}.",
            "A {age}-year-old from {town} has {feat} for {cause}.",
            "{name} from {town} has raised {money} for {cause}.",
        ],
        body: &[
            &[
                "The journey took {n} days and led through {town2} and {town3}.",
                "After {n} days {they} was welcomed by a brass band in {town2}.",
            ],
            &[
                "{last} began training in {month} of last year.",
                "{last} had hardly done any sport before.",
            ],
            &[
                "\"My feet hurt, but my heart is full,\" {last} said.",
                "\"I thought of giving up every single morning,\" {last} said.",
            ],
            &[
                "The idea was born after a friend, {name2}, fell ill.",
                "{last} made the promise to {name2}, an old school friend.",
            ],
            &[
                "Strangers offered food, beds and {k} pairs of socks.",
                "A total of {k} pairs of shoes were worn out on the way.",
            ],
            &[
                "So far {money} has been collected.",
                "More than {m} people have given money.",
            ],
            &[
                "{name3} of the charity said the sum would pay for a new minibus.",
                "\"This will change lives,\" said {name3}, who speaks for the charity.",
            ],
            &[
                "Next year {they} wants to go even further.",
                "Now {they} plans to sleep for a week.",
            ],
        ],
        summary: &[
            "{name} from {town} has {feat} to raise money for {cause}.",
            "A {age}-year-old from {town} has raised thousands for {cause}.",
        ],
        choices: &[
            (
                "feat",
                &[
                    "walked the length of the country",
                    "rowed down the river Orrin",
                    "cycled around the coast",
                    "climbed a tower 100 times",
                    "swum across three lakes",
                    "pushed a piano over the hills",
                ],
            ),
            (
                "cause",
                &[
                    "a children's hospital",
                    "the lifeboat service",
                    "an animal shelter",
                    "a hospice",
                    "a food bank",
                ],
            ),
        ],
    },
    Event {
        lead: &[
            "There was relief in {town} when {animal} was rescued from {trouble} on {day}.",
            "Rescuers in {town} have freed {animal} from {trouble}.",
            "It took {k} hours to free {animal} from {trouble} in {town} on {day}.",
        ],
        body: &[
            &[
                "{name} heard strange noises on the way to work and called for help.",
                "The alarm was raised by {name}, {age}, who lives next door.",
            ],
            &[
                "{n} volunteers and a vet took part in the operation.",
                "A vet and {k} firefighters were called to the scene.",
            ],
            &[
                "At first they tried to lure it out with food.",
                "Ropes, blankets and a bucket of apples were used.",
            ],
            &[
                "\"It looked at us as if we were the problem,\" said rescuer {name2}.",
                "Rescuer {name2} said it had been calm throughout.",
            ],
            &[
                "It had a few scratches but was otherwise well.",
                "Apart from being hungry it had come to no harm.",
            ],
            &[
                "The animal had escaped from a farm near {town2}.",
                "Nobody knows how it got there from {town2}.",
            ],
            &[
                "Its owner, {name3}, brought cake for everyone involved.",
                "{name3}, to whom it belongs, said a fence would be repaired at once.",
            ],
            &[
                "A film of the rescue has been watched {m} times.",
                "The road was closed for {n} minutes.",
            ],
        ],
        summary: &[
            "After an operation of several hours {animal} has been freed from {trouble} in {town}.",
            "Rescuers have saved {animal} from {trouble} in {town}.",
        ],
        choices: &[
            (
                "animal",
                &[
                    "a young donkey",
                    "a stray goat",
                    "a large sheepdog",
                    "a pony called Biscuit",
                    "an escaped llama",
                    "a swan",
                ],
            ),
            (
                "trouble",
                &[
                    "a garden pond",
                    "a drainpipe",
                    "a church tower",
                    "the mud of the harbour",
                    "an empty swimming pool",
                    "a disused well",
                ],
            ),
        ],
    },
    Event {
        lead: &[
            "A {age}-year-old man has been jailed for stealing {loot} from {victim} in {town}.",
            "The thief who took {loot} from {victim} in {town} has been sent to prison.",
            "A court in {town2} has sentenced a man to {k} years in prison over the theft of {loot}.",
        ],
        body: &[
            &[
                "The court heard that {name2} had planned the theft for {n} weeks.",
                "{name2} admitted the theft but could not explain it.",
            ],
            &[
                "He entered through a window that had been left open on a {day} night.",
                "Cameras showed him leaving with a wheelbarrow.",
            ],
            &[
                "Police found the goods in a garage in {town3}.",
                "Part of the goods turned up at a car boot sale in {town3}.",
            ],
            &[
                "The damage came to {money}.",
                "The stolen goods were worth {money}.",
            ],
            &[
                "Judge {name} said the case was among the oddest of a long career.",
                "\"You betrayed people who trusted you,\" judge {name} told him.",
            ],
            &[
                "His lawyer said that he was deeply sorry and had debts.",
                "In his defence it was said that he had lost his job in {month}.",
            ],
            &[
                "{name3}, who speaks for the owners, said they could now sleep again.",
                "\"We just want it back,\" said {name3} for the owners.",
            ],
            &[
                "He had {k} earlier convictions.",
                "He must also do {m} hours of unpaid work after his release.",
            ],
        ],
        summary: &[
            "A {age}-year-old man has been sent to prison for stealing {loot} from {victim} in {town}.",
            "A man has been jailed for {k} years for the theft of {loot} in {town}.",
        ],
        choices: &[
            (
                "loot",
                &[
                    "church bells",
                    "rare orchids",
                    "silver trophies",
                    "antique clocks",
                    "racing pigeons",
                    "copper cable",
                    "old violins",
                ],
            ),
            (
                "victim",
                &[
                    "a charity",
                    "a family business",
                    "a museum",
                    "a former employer",
                    "a sports club",
                ],
            ),
        ],
    },
    Event {
        lead: &[
            "People who {habit} may {effect}, a study suggests.",
            "Researchers in {town} have found that people who {habit} {effect}.",
            "Those who {habit} seem to {effect}, scientists at the University of {town} say.",
        ],
        body: &[
            &[
                "The team followed {m} adults over {k} years.",
                "{m} volunteers kept a diary for {k} months.",
            ],
            &[
                "About {n} per cent of them reported a clear change.",
                "The effect was seen in {n} per cent of those who took part.",
            ],
            &[
                "Lead author {name} said the result had come as a surprise.",
                "\"We did not expect such a clear picture,\" said lead author {name}.",
            ],
            &[
                "It was strongest in people above the age of {age}.",
                "Those under {age} hardly showed any difference.",
            ],
            &[
                "The reasons are not fully understood.",
                "The scientists suspect that regular habits play a part.",
            ],
            &[
                "{name2}, who was not involved, warned against reading too much into it.",
                "Independent expert {name2} called for larger studies.",
            ],
            &[
                "The work was paid for with {money} of public money.",
                "A grant of {money} made the work possible.",
            ],
            &[
                "The findings appear in a journal in {month}.",
                "The team now wants to repeat the study in {town2}.",
            ],
        ],
        summary: &[
            "People who {habit} may {effect}, according to researchers in {town}.",
            "A study by scientists in {town} suggests that those who {habit} {effect}.",
        ],
        choices: &[
            (
                "habit",
                &[
                    "walk every day",
                    "sing in a choir",
                    "keep a garden",
                    "eat breakfast early",
                    "read before bed",
                    "own a dog",
                ],
            ),
            (
                "effect",
                &[
                    "sleep better",
                    "fall ill less often",
                    "remember names more easily",
                    "live longer",
                    "feel less lonely",
                ],
            ),
        ],
    },
    Event {
        lead: &[
            "{name} has been chosen as the new {post} of the {body_name} in {town}.",
            "The {body_name} in {town} has named {name} as its new {post}.",
            "{town}'s {body_name} will have a new {post}: {name}, {age}.",
        ],
        body: &[
            &[
                "{last} takes over from {name2}, who is stepping down after {k} years.",
                "The post had been vacant since {name2} left in {month}.",
            ],
            &[
                "There had been {n} applicants from all over the country.",
                "{last} was preferred to {n} other candidates.",
            ],
            &[
                "Born in {town2}, {last} once worked as a nurse.",
                "{last} grew up in {town2} as one of {k} children.",
            ],
            &[
                "\"I intend to listen before I act,\" {last} said.",
                "\"There is much to repair and much to be proud of,\" {last} said.",
            ],
            &[
                "The first task will be to close a gap of {money} in the budget.",
                "A budget of {money} has to be agreed within weeks.",
            ],
            &[
                "{name3}, who chairs the board, praised a fresh mind.",
                "Board member {name3} called it a bold choice.",
            ],
            &[
                "Critics point to a lack of experience.",
                "Some members had asked for an open vote.",
            ],
            &[
                "The institution was founded in {year} and has {m} members.",
                "It has existed since {year}.",
            ],
        ],
        summary: &[
            "{name} has been named as the new {post} of the {body_name} in {town}.",
            "{name} is to succeed {name2} as {post} of {town}'s {body_name}.",
        ],
        choices: &[
            ("post", &["director", "head", "president", "manager"]),
            (
                "body_name",
                &[
                    "orchestra",
                    "hospital",
                    "harbour office",
                    "rowing club",
                    "art college",
                    "botanical garden",
                ],
            ),
        ],
    },
    Event {
        lead: &[
            "A {age}-year-old {victim} has been injured in a crash between {vehicle} and {vehicle2} near {town}.",
            "The road from {town} to {town2} was closed after {vehicle} hit {vehicle2} on {day}.",
            "Police are looking for witnesses of a crash between {vehicle} and {vehicle2} in {town}.",
        ],
        body: &[
            &[
                "It happened at about {k} o'clock at a crossing with poor visibility.",
                "The accident took place in thick fog shortly before {k} o'clock.",
            ],
            &[
                "The injured person was flown to hospital in {town2}.",
                "An ambulance took the injured person to {town2}, where doctors speak of a lucky escape.",
            ],
            &[
                "The driver, {name}, stopped at once and gave first aid.",
                "{name}, who was driving, suffered a shock.",
            ],
            &[
                "Firefighters needed {n} minutes to clear the wreck.",
                "It took {n} minutes to open one of the doors.",
            ],
            &[
                "Traffic was held up for {k} hours.",
                "Long queues formed in both directions.",
            ],
            &[
                "Sergeant {name2} asked anyone with a camera in the car to come forward.",
                "\"We need to hear from anyone who was there,\" said Sergeant {name2}.",
            ],
            &[
                "Residents have asked for traffic lights since {month}.",
                "More than {m} people have signed a call for a lower speed limit.",
            ],
            &[
                "There have been {k} accidents at the spot this year.",
                "The repair of the barrier will cost {money}.",
            ],
        ],
        summary: &[
            "A {age}-year-old {victim} has been injured in a crash between {vehicle} and {vehicle2} near {town}.",
            "One person was hurt when {vehicle} collided with {vehicle2} near {town}.",
        ],
        choices: &[
            (
                "victim",
                &["cyclist", "pedestrian", "passenger", "motorcyclist"],
            ),
            (
                "vehicle",
                &[
                    "a milk lorry",
                    "a school bus",
                    "a tractor",
                    "a delivery van",
                    "a taxi",
                ],
            ),
            (
                "vehicle2",
                &[
                    "a parked car",
                    "a caravan",
                    "a tram",
                    "a horse trailer",
                    "a sports car",
                ],
            ),
        ],
    },
    Event {
        lead: &[
            "A {kind} festival in {town} has drawn record crowds.",
            "More than {m} visitors came to the {kind} festival in {town} at the weekend.",
            "{town}'s {kind} festival ended on {day} with a concert by {name}.",
        ],
        body: &[
            &[
                "It goes back to an idea of {year}.",
                "The event has been held since {year}.",
            ],
            &[
                "Organiser {name2} spoke of the happiest days of the year.",
                "\"We ran out of chairs, and nobody minded,\" said organiser {name2}.",
            ],
            &[
                "Guests came from {town2}, {town3} and even from overseas.",
                "Special trains ran from {town2} and {town3}.",
            ],
            &[
                "A prize worth {money} went to {name3}.",
                "{name3} won the main prize for a work about the sea.",
            ],
            &[
                "Children could try everything for themselves in {k} tents.",
                "In {k} tents children learned from the masters.",
            ],
            &[
                "On {day2} a storm forced a break of two hours.",
                "Sunshine on {day2} brought out the crowds.",
            ],
            &[
                "{last} played for two hours without a pause.",
                "{last} gave an encore on a borrowed instrument.",
            ],
            &[
                "Tickets for next year go on sale in {month}.",
                "Next year there is to be a second stage.",
            ],
        ],
        summary: &[
            "Record crowds have visited the {kind} festival in {town}.",
            "{town}'s {kind} festival has ended after drawing more than {m} visitors.",
        ],
        choices: &[(
            "kind",
            &[
                "jazz",
                "lantern",
                "cheese",
                "poetry",
                "kite",
                "folk dance",
                "chocolate",
                "street theatre",
            ],
        )],
    },
    Event {
        lead: &[
            "Pupils at a school in {town} have {deed}.",
            "A class of {n} children in {town} has {deed}.",
            "A school in {town} has won a national prize after its pupils had {deed}.",
        ],
        body: &[
            &[
                "The project began {k} months ago with a question in a science lesson.",
                "It all started in {month} with a walk around the school.",
            ],
            &[
                "Teacher {name} said the children had done everything themselves.",
                "\"I only held the ladder,\" said their teacher, {name}.",
            ],
            &[
                "{n} pupils aged nine to eleven took part.",
                "Every afternoon {n} pupils stayed behind to help.",
            ],
            &[
                "Parents and a firm from {town2} gave materials worth {money}.",
                "A workshop in {town2} lent them tools.",
            ],
            &[
                "Ten-year-old {name2} wants to become an engineer now.",
                "\"I did not know that maths could do that,\" said {name2}, ten.",
            ],
            &[
                "The jury praised their patience and good humour.",
                "The prize includes a trip to {town3}.",
            ],
            &[
                "Head teacher {name3} hopes that other schools will copy the idea.",
                "Already {k} other schools have asked for the plans.",
            ],
            &[
                "The school, built in {year}, has {m} pupils.",
                "A plaque at the gate will recall the project.",
            ],
        ],
        summary: &[
            "Pupils at a school in {town} have {deed}.",
            "Children in {town} have {deed} in a project that took {k} months.",
        ],
        choices: &[(
            "deed",
            &[
                "built a weather station",
                "planted a small forest",
                "written an opera",
                "designed a bridge for toads",
                "built a boat from bottles",
                "made a map of the night sky",
            ],
        )],
    },
    Event {
        lead: &[
            "{name} has won the {contest} at the age of {age}.",
            "The {contest} has been won by {name} from {town}.",
            "{name}, a {job} from {town}, has taken first place in the {contest}.",
        ],
        body: &[
            &[
                "{last} beat {n} rivals in the final in {town2}.",
                "The final in {town2} was decided by a single point.",
            ],
            &[
                "Second place went to {name2}.",
                "Favourite {name2} had to be content with second place.",
            ],
            &[
                "\"I still cannot believe it,\" {last} said with tears in the eyes.",
                "\"I shall be back at work on {day2},\" {last} said.",
            ],
            &[
                "The prize is {money} and a silver cup.",
                "Winners receive a cup that was made in {year}.",
            ],
            &[
                "{last} had taken part {k} times before without success.",
                "It was only the second attempt for {last}.",
            ],
            &[
                "The judges praised a calm hand and a sense of humour.",
                "Judge {name3} spoke of a performance without a fault.",
            ],
            &[
                "Some {m} people watched in the hall.",
                "The final was shown live to {m} viewers.",
            ],
            &[
                "The contest has been held since {year}.",
                "Next year's contest will take place in {town3}.",
            ],
        ],
        summary: &[
            "{name} from {town} has won the {contest}.",
            "A {age}-year-old {job} from {town} has won the {contest}.",
        ],
        choices: &[
            (
                "contest",
                &[
                    "National Bread Prize",
                    "Lake Chess Open",
                    "Junior Inventors' Cup",
                    "Great Sheepdog Trial",
                    "Short Story Award",
                    "Island Marathon",
                    "Golden Needle contest",
                ],
            ),
            (
                "job",
                &[
                    "postal worker",
                    "dentist",
                    "student",
                    "bus driver",
                    "baker",
                    "librarian",
                ],
            ),
        ],
    },
];
